"""Backtracking: loops, long silences and words said again are rewound, their codes penalised.

A frame is final once `backtrack_window` newer ones exist, or `backtrack_share` of all are newer;
the first block as soon as it is complete. This holds for streams and for speech sent whole alike,
so streaming changes no code. A loop that lies deeper than the window ends the utterance; where the
window is still shorter than that, the loop is cut behind what is final.

The detectors are in `samplers.ops.stuck`; the caller rewinds cache and sampler. All of it runs on
the host, from the codes alone, so that no frame waits for a device.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from samplers.ar.backtrack import Backtrack, BacktrackCause
from samplers.ar.state import Avoided
from samplers.knobs.features import rewindable
from samplers.knobs.params import SamplingParams
from samplers.ops.stuck import discourage, find_loop, find_silence

KEPT_SILENCE = 20  # frames: a pause, as people make them
FAILURES_TO_BAN = 2
RETURN_FRAMES = (16, 32, 48, 48, 48, 48, 48)
"""Frames before speech goes back in its text that are sampled again: further each time it fails,
and then such speech may stand. docs/results/texts.md has what others gave."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many first frames of an utterance that is stuck to keep, and whether to end it there."""

    keep: int
    stuck: bool


class Backtracker:
    """Detects that one sequence is stuck, and penalises the codes that led there.

    ``silent`` are the codes of silence. Frames that are kept of an earlier take are never rewound.
    `taken` are the backtracks so far, in order, those of that take included.
    """

    def __init__(
        self,
        params: SamplingParams,
        silent: Iterable[int],
        *,
        first_block: int,
        kept_frames: int = 0,
        kept_backtracks: Iterable[Backtrack] = (),
    ) -> None:
        self._params = params
        self._first_block = first_block
        self._silent = frozenset(silent)
        self._failures: dict[int, Counter[int]] = {}
        self._repeat: Backtrack | None = None  # that took words back last
        self.taken: list[Backtrack] = []
        self._kept = kept_frames
        for backtrack in kept_backtracks:
            self._note(backtrack)
        self._reached = max([self._kept, *(backtrack.frames for backtrack in self.taken)])

    @property
    def final(self) -> int:
        """How many of the first frames will not be rewound."""
        return max(self._block, self._reached - self._window)

    @property
    def _block(self) -> int:
        """Frames of the first block once it is complete; 0 before."""
        return self._first_block if self._reached >= self._first_block else 0

    @property
    def _window(self) -> int:
        """How many of the newest frames may be rewound; before the first block all of a window."""
        if not self._block:
            return self._params.backtrack_window
        return rewindable(self._params, self._reached)

    def avoided(self, frame: int, vocab_size: int) -> Avoided | None:
        """Return what to add to ``(V,)`` logits from a frame on, where codes failed; or None.

        What failed at a frame is avoided there, and forbidden after two failures. Where words were
        said again all codes that were removed are avoided until some frames behind them, more the
        more often they were, and what failed meanwhile with them; guidance, which favours such
        words, is off until then.
        """
        failures = self._failures.get(frame, Counter())
        times = failures.copy()
        until = frame + 1
        repeats = self._repeat is not None and frame < self._repeat.until
        if self._repeat is not None and repeats:
            until = self._repeat.until
            for one in self._repeats(self._repeat.frames):
                times.update({*one.codes})
        if not times:
            return None
        codes = torch.tensor([list(times)])
        factors = self._params.backtrack_factor ** torch.tensor([list(times.values())])
        strength = torch.tensor([[self._params.backtrack_strength]])
        nats = discourage(torch.zeros(1, vocab_size), codes, factors, strength)[0]
        nats[[code for code, failed in failures.items() if failed >= FAILURES_TO_BAN]] = -torch.inf
        return Avoided(nats, until, unguided=repeats)

    def check(self, codes: Sequence[int], returned: int | None = None) -> Verdict | None:
        """Look for a loop, a silence or a banned sequence at the end; call after every frame.

        From frame ``returned`` on the text is said again. None if nothing is found, or nothing can
        be done about it.
        """
        length = len(codes)
        self._reached = max(self._reached, length)
        found = self._sequence(codes) or self._loop(codes) or self._silence(codes)
        found = found or self._return(returned, length)
        if found is None:
            return None
        cause, keep = found
        # Words that were said again count apart: they never end an utterance.
        repeats = cause == "repeat"
        spent = sum((one.cause == "repeat") == repeats for one in self.taken)
        in_part = repeats or self._window < self._params.backtrack_window
        keep = max(keep, self.final if in_part else self._block)
        if keep >= length:  # nothing but final frames yet
            return None
        if keep < self.final or spent >= self._params.backtrack_budget:
            if cause in {"sequence", "repeat"}:  # a nuisance, but speech: it may stand
                return None
            return Verdict(max(keep, self.final, self._kept), stuck=True)
        keep = max(keep, self._kept)
        if keep >= length:
            return None
        removed = tuple(codes[keep:]) if cause == "repeat" else ()
        self._note(Backtrack(cause, length, keep, codes[keep], removed))
        return Verdict(keep, stuck=False)

    def _note(self, backtrack: Backtrack) -> None:
        # Failures at later frames followed codes that are now rewound: they no longer apply.
        kept = backtrack.kept
        self._failures = {at: codes for at, codes in self._failures.items() if at <= kept}
        if self._repeat is not None and self._repeat.kept > kept:
            self._repeat = None
        self.taken.append(backtrack)
        if backtrack.cause == "repeat":
            self._repeat = backtrack
            return
        repeated = kept in self._failures
        # Another code of silence may lead out of a silence; where that failed, none does.
        all_silence = backtrack.cause == "silence" and repeated
        failed = self._silent if all_silence else {backtrack.code}
        self._failures.setdefault(kept, Counter()).update(failed)

    def _loop(self, codes: Sequence[int]) -> tuple[BacktrackCause, int] | None:
        params = self._params
        hit = find_loop(
            codes,
            max_period=params.backtrack_max_period,
            min_repeats=params.backtrack_min_repeats,
            min_frames=params.backtrack_min_frames,
        )
        # Silence repeats itself by nature; `_silence` limits its length.
        if hit is None or self._silent.issuperset(codes[-hit.period :]):
            return None
        return "loop", hit.rewind_to

    def _silence(self, codes: Sequence[int]) -> tuple[BacktrackCause, int] | None:
        longest = self._params.backtrack_max_silence
        if not longest:
            return None
        # Any frame of a silence is as good a place to resume: choose one that is not final.
        keep = min(longest, max(KEPT_SILENCE, longest + 1 - self._window))
        recent = codes[-1 - longest :]
        hit = find_silence(recent, self._silent, longest=longest, keep=keep)
        return None if hit is None else ("silence", len(codes) - len(recent) + hit.rewind_to)

    def _return(self, returned: int | None, length: int) -> tuple[BacktrackCause, int] | None:
        """Sample what leads back to earlier words again, from further before each time it fails."""
        if returned is None:
            return None
        tried = len(self._repeats(length))
        if tried >= len(RETURN_FRAMES):
            return None
        return "repeat", max(0, returned - RETURN_FRAMES[tried])

    def _repeats(self, length: int) -> list[Backtrack]:
        """Return what took words back at about a length."""
        near = RETURN_FRAMES[-1]
        return [
            one for one in self.taken if one.cause == "repeat" and abs(one.frames - length) <= near
        ]

    def _sequence(self, codes: Sequence[int]) -> tuple[BacktrackCause, int] | None:
        """Find a sequence of `ban_sequences` that was completed although its end is penalised."""
        for banned in self._params.ban_sequences:
            start = len(codes) - len(banned.codes)
            if banned.strength > 0 and start >= 0 and list(codes[start:]) == list(banned.codes):
                return "sequence", start
        return None
