"""Getting a stuck utterance going again: who notices, how far to go back, what to try less there.

A frame is final once `backtrack_window` newer ones exist, and the first block at once, whether
anybody listens already or not: what was sent cannot be taken back, and streaming changes no code.
So a loop that begins in the first block is broken behind it, and one that lies deeper than the
window ends the utterance.

The detectors are `samplers.ops.stuck`'s; the caller rewinds cache and sampler.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from app.engine.job import Backtrack, BacktrackCause
from samplers.ar.history import History
from samplers.knobs.params import SamplingParams
from samplers.ops.stuck import Hit, discourage, find_loop, find_silence

KEPT_SILENCE = 20  # frames: a pause, as people make them
FAILURES_TO_BAN = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do about an utterance: keep so many frames, and then go on or give up."""

    keep: int
    stuck: bool


class Backtracker:
    """Watches one utterance."""

    def __init__(self, params: SamplingParams, silent: Tensor, *, first_block: int) -> None:
        """Watch with the row's knobs.

        Args:
            params: Resolved.
            silent: ``(V,)`` bool, the codes of silence.
            first_block: Frames that are final as soon as they are there.
        """
        self._params, self._silent, self._first_block = params, silent, first_block
        self._silent_codes: set[int] = set(torch.nonzero(silent)[:, 0].tolist())
        self._reached = 0
        self._failures: dict[int, Counter[int]] = {}
        self.taken: list[Backtrack] = []

    @property
    def final(self) -> int:
        """How many of the first frames will not be taken back: what may be heard."""
        block = self._first_block if self._reached >= self._first_block else 0
        return max(block, self._reached - self._params.backtrack_window)

    def discourage(self, logits: Tensor, frame: int) -> Tensor:
        """Make less likely what failed at a frame, and impossible what failed there twice.

        Args:
            logits: ``(1, V)``, the model's at that frame; not changed.
            frame: Which frame they are for.

        Returns:
            ``(1, V)``.
        """
        failures = self._failures.get(frame)
        if not failures:
            return logits
        params, device = self._params, logits.device
        codes = torch.tensor([list(failures)], device=device)
        times = torch.tensor([list(failures.values())], device=device)
        strength = torch.tensor([[params.backtrack_strength]], device=device)
        logits = discourage(logits, codes, params.backtrack_factor**times, strength)
        return logits.index_fill(1, codes[times >= FAILURES_TO_BAN], -torch.inf)

    def look(self, codes: Sequence[int], history: History, row: int) -> Verdict | None:
        """Look at the newest frames, after every one of them.

        Args:
            codes: The frames that there are.
            history: Where the same codes are a row.
            row: Which.

        Returns:
            What to do; None if all is right.
        """
        length = len(codes)
        self._reached = max(self._reached, length)
        found = self._sequence(codes)
        # What the newest code rules out, as it mostly does, need not be looked for on the device.
        if not found and codes[-1] in codes[-1 - self._params.backtrack_max_period : -1]:
            found = self._loop(history.row(row))
        if not found and codes[-1] in self._silent_codes:
            found = self._silence(history.row(row))
        if found is None:
            return None
        cause, keep = found
        if self._reached >= self._first_block:
            keep = max(keep, self._first_block)
        if keep >= length:  # nothing but final frames yet
            return None
        if keep < self.final or len(self.taken) >= self._params.backtrack_budget:
            if cause == "sequence":  # a nuisance, but speech: it may stand
                return None
            return Verdict(max(keep, self.final), stuck=True)
        self._note(Backtrack(cause, length, keep, codes[keep]))
        return Verdict(keep, stuck=False)

    def _note(self, backtrack: Backtrack) -> None:
        self.taken.append(backtrack)
        # What failed at a later frame failed after other codes than will now come.
        kept = backtrack.kept
        self._failures = {at: codes for at, codes in self._failures.items() if at <= kept}
        again = kept in self._failures
        # Another code of silence may lead out of a silence; where that failed, none does.
        hushed = backtrack.cause == "silence" and again
        failed = self._silent_codes if hushed else {backtrack.code}
        self._failures.setdefault(kept, Counter()).update(failed)

    def _loop(self, history: History) -> tuple[BacktrackCause, int] | None:
        params = self._params
        hit = find_loop(
            history.runs,
            history.lengths,
            max_period=params.backtrack_max_period,
            min_repeats=params.backtrack_min_repeats,
            min_tokens=params.backtrack_min_frames,
        )
        keep = _keep(hit)
        # Silence repeats itself by nature; how long it may is asked below.
        if keep is None or self._silent[history.newest_first(int(hit.period[0]))[0]].all():
            return None
        return "loop", keep

    def _silence(self, history: History) -> tuple[BacktrackCause, int] | None:
        longest = self._params.backtrack_max_silence
        if not longest:
            return None
        # Every frame of a silence is as good a place to go on from: take one that is not final.
        keep = min(longest, max(KEPT_SILENCE, longest + 1 - self._params.backtrack_window))
        recent = history.newest_first(longest + 1)
        found = _keep(
            find_silence(recent, history.lengths, self._silent, longest=longest, keep=keep)
        )
        return None if found is None else ("silence", found)

    def _sequence(self, codes: Sequence[int]) -> tuple[BacktrackCause, int] | None:
        """Find a listed sequence that was completed although its last code was punished."""
        for banned in self._params.ban_sequences:
            start = len(codes) - len(banned.codes)
            if banned.strength > 0 and start >= 0 and list(codes[start:]) == list(banned.codes):
                return "sequence", start
        return None


def _keep(hit: Hit) -> int | None:
    return int(hit.rewind_to[0]) if bool(hit.found[0]) else None
