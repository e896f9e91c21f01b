"""The state of a batch of rows between steps; rows join, leave and come back.

Processors have no state. What a row's state was at each length is kept, so that a rewind restores
nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from samplers.ar.history import History
from samplers.knobs.features import is_on
from samplers.knobs.params import SamplingParams
from samplers.ops.bounds import within
from samplers.ops.draw import Stage, forked_keys, stream_key
from samplers.processors.draw import DrawResult
from samplers.processors.registry import reads_runs
from samplers.processors.scores import Scores

NEVER = -(2**31)
"""The frame of an act that never was: longer ago than any interval."""


@dataclass(frozen=True, eq=False)
class RowParams:
    """What never changes about a row; the beams of one search share one.

    Attributes:
        params: Resolved.
        max_frames: How many codes it may hold.
        silent: ``(<= V,)`` bool, the codes of silence, or None.
        prompted: How many codes of a prompt its penalties count.
    """

    params: SamplingParams
    max_frames: int
    silent: Tensor | None
    prompted: int

    @property
    def wants_attention(self) -> bool:
        """Whether entropix reads the statistics of the model's attention."""
        return is_on("entropix", self.params)

    @property
    def acts(self) -> bool:
        """Whether entropix may branch, or pause, which needs `silent`."""
        pauses = self.silent is not None and is_on("pause", self.params)
        return pauses or is_on("branch", self.params)

    @cached_property
    def tracks_runs(self) -> bool:
        """Whether a processor reads runs, see `repeats.count_runs`."""
        return reads_runs(self.params)


@dataclass(frozen=True)
class DrawnCodes:
    """Codes that a row begins with, and what was known when the last of them was drawn.

    Attributes:
        codes: ``(N,)`` int64.
        attempts: How often the row was rewound before.
        mu: Mirostat's state after them, in bits; None: that of a new row.
        last_act: The frame at which entropix last acted; None: it never did.
    """

    codes: Tensor
    attempts: int = 0
    mu: float | None = None
    last_act: int | None = None


@dataclass(eq=False)
class SamplerState:
    """State of some rows; B is their number.

    Attributes:
        rows: What never changes about them.
        history: The codes that each has drawn.
        counted: The same with the prompt before it that penalties count; None where no row has
            one.
        stopped: ``(B,)`` bool, which have ended.
        limits: ``(B, 1)`` int64, how many codes each may hold.
        keys: ``(B, 1)`` int64, key of each row's random stream.
        attempts: ``(B, 1)`` int64, how often each was rewound.
        mu: ``(B, max_frames + 2)`` float32, in bits: mirostat's state at each length.
        last_act: ``(B, max_frames + 2)`` int64, the frame at which entropix last paused or
            branched, at each length.
        beam_scores: ``(B,)`` float32 nats, the log-probability of a beam's codes; -inf in a row
            of a search that holds no beam.
    """

    rows: Sequence[RowParams]
    history: History
    counted: History | None
    stopped: Tensor
    limits: Tensor
    keys: Tensor
    attempts: Tensor
    mu: Tensor
    last_act: Tensor
    beam_scores: Tensor

    @classmethod
    def begin(
        cls,
        params: SamplingParams,
        seed: int,
        *,
        max_frames: int,
        device: torch.device,
        utterance: int = 0,
        candidate: int = 0,
        prompt: Tensor | None = None,
        silent: Tensor | None = None,
        drawn: DrawnCodes | None = None,
    ) -> "SamplerState":
        """Return the state of a new row, or of all beams of a search; see `ArSampler.join`."""
        before = prompt if params.penalty_includes_prompt else None
        prompted = 0 if before is None else len(before)
        row = RowParams(params, max_frames, silent, prompted)
        history = History(1, max_frames, device, track_runs=row.tracks_runs)
        counted = None
        if before is not None and prompted:
            counted = History(1, max_frames + prompted, device, track_runs=row.tracks_runs)
            past = before.to(device)
            if drawn is not None:
                past = torch.cat([past, drawn.codes.to(device)])
            counted.preload(0, past)
        if drawn is not None:
            history.preload(0, drawn.codes.to(device))
        key = stream_key(seed, utterance, Stage.AR, candidate=candidate)
        # The stop, too, has a next state: one column past the last length.
        shape = (1, max_frames + 2)
        begun = cls(
            [row],
            history,
            counted,
            torch.zeros(1, dtype=torch.bool, device=device),
            torch.tensor([[max_frames]], device=device),
            torch.tensor([[key]], device=device),
            torch.zeros(1, 1, dtype=torch.int64, device=device),
            torch.full(shape, float(within(params.mirostat_tau)), device=device).mul_(2),
            torch.full(shape, NEVER, device=device),
            torch.zeros(1, device=device),
        )
        if drawn is not None:
            length = len(drawn.codes)
            begun.attempts.fill_(drawn.attempts)
            if drawn.mu is not None:
                begun.mu[:, length] = drawn.mu
            if drawn.last_act is not None:
                begun.last_act[:, length] = drawn.last_act
        if params.beam_width > 1:
            begun = begun.take([0] * params.beam_width)
            begun.beam_scores[1:], begun.stopped[1:] = -torch.inf, True
        return begun

    @classmethod
    def join(cls, parts: Sequence["SamplerState"]) -> "SamplerState":
        """Return the state of the rows of several states, in order.

        Args:
            parts: At least one, all on one device.
        """
        prompted = any(part.counted is not None for part in parts)
        return cls(
            [row for part in parts for row in part.rows],
            History.join([part.history for part in parts]),
            History.join([part.counted or part.history for part in parts]) if prompted else None,
            torch.cat([part.stopped for part in parts]),
            limits=torch.cat([part.limits for part in parts]),
            keys=torch.cat([part.keys for part in parts]),
            attempts=torch.cat([part.attempts for part in parts]),
            mu=_stack([part.mu for part in parts]),
            last_act=_stack([part.last_act for part in parts]),
            beam_scores=torch.cat([part.beam_scores for part in parts]),
        )

    def take(self, places: Sequence[int]) -> "SamplerState":
        """Return a copy of the state of some rows.

        Args:
            places: Which rows, in the order of the copy; at least one.
        """
        rows = [self.rows[place] for place in places]
        track_runs, counted = any(row.tracks_runs for row in rows), None
        longest = max(row.max_frames for row in rows)
        if self.counted is not None and any(row.prompted for row in rows):
            most = max(row.max_frames + row.prompted for row in rows)
            counted = self.counted.take(places, most, track_runs=track_runs)
        index = torch.tensor(places, dtype=torch.int64, device=self.keys.device)
        columns = (self.stopped, self.limits, self.keys, self.attempts)
        by_length = (self.mu[:, : longest + 2], self.last_act[:, : longest + 2])
        return SamplerState(
            rows,
            self.history.take(places, longest, track_runs=track_runs),
            counted,
            *(table.index_select(0, index) for table in (*columns, *by_length, self.beam_scores)),
        )

    @property
    def histories(self) -> Sequence[History]:
        """`history`, and `counted` if there is one."""
        return (self.history,) if self.counted is None else (self.history, self.counted)

    @property
    def longest_counted(self) -> int:
        """How many codes penalties may count in a full row, those of its prompt included."""
        return max(row.max_frames + row.prompted for row in self.rows)

    @cached_property
    def tracks_runs(self) -> bool:
        """Whether any row needs the runs of its history."""
        return any(row.tracks_runs for row in self.rows)

    def scores(self, logits: Tensor, lookback: int) -> Scores:
        """Return the scores of a step before any processor.

        Args:
            logits: ``(B, V)`` float32 without NaN.
            lookback: How many of the newest codes the processors read.
        """
        recent = counted = self.history.newest_first(lookback)
        if self.counted is not None:
            counted = self.counted.newest_first(lookback)
        runs = (self.counted or self.history).runs if self.tracks_runs else counted
        lengths = self.history.lengths[:, None]
        return Scores(
            logits, lengths, recent, counted, runs, self.keys, self.attempts, limits=self.limits
        )

    def append(self, codes: Tensor, stopped: Tensor, scores: Scores, drawn: DrawResult) -> None:
        """Add the result of a step.

        Args:
            codes: ``(B,)`` int64, the codes of the step.
            stopped: ``(B,)`` bool, rows that have ended: their histories do not grow.
            scores: After the step.
            drawn: The draw.
        """
        following = scores.lengths + 1
        if drawn.mu is not None:
            self.mu.scatter_(1, following, drawn.mu)
        if scores.last_act is not None and scores.decision is not None:
            acted = scores.decision.paused | scores.decision.branched
            last_act = torch.where(acted, scores.lengths, scores.last_act)
            self.last_act.scatter_(1, following, last_act)
        self.stopped.copy_(stopped)
        for history in self.histories:
            history.append(codes, ~stopped)

    def rewind(self, place: int, length: int) -> None:
        """Remove all but the first ``length`` codes of a row, which then goes on.

        Args:
            place: Which row.
            length: How many to keep; no more than it holds.
        """
        self.history.rewind(place, length)
        if self.counted is not None:
            self.counted.rewind(place, self.rows[place].prompted + length)
        self.attempts[place] += 1
        self.stopped[place] = False

    def overwrite(self, places: Sequence[int], sources: Sequence[int]) -> None:
        """Copy rows of a beam search over others of it.

        Args:
            places: The rows that change, all different.
            sources: The row, as it was before, that each becomes.
        """
        device = self.keys.device
        index, source = (torch.tensor(given, device=device) for given in (places, sources))
        for table in (self.stopped, self.attempts, self.mu, self.last_act, self.beam_scores):
            table.index_copy_(0, index, table.index_select(0, source))
        for history in self.histories:
            history.overwrite(places, sources)

    def fork(self, place: int, length: int, code: int, number: int) -> "SamplerState":
        """Return a copy of a row with another code in place of its last.

        Args:
            place: Which row.
            length: How many codes it holds.
            code: The other code.
            number: Number of the copy, from 1 on: names its random stream from here.
        """
        forked = self.take([place])
        forked.keys = forked_keys(forked.keys, number)
        newest = torch.tensor([code], device=self.keys.device)
        for history, before in (
            (forked.history, 0),
            (forked.counted, forked.rows[0].prompted),
        ):
            if history is not None:
                history.rewind(0, before + length - 1)
                history.append(newest, torch.ones_like(newest, dtype=torch.bool))
        return forked


def _stack(tables: Sequence[Tensor]) -> Tensor:
    """Return ``(n, W)`` tables of unequal widths as one, shorter rows padded with 0."""
    stacked = tables[0].new_zeros(
        sum(len(table) for table in tables), max(table.shape[1] for table in tables)
    )
    start = 0
    for table in tables:
        stacked[start : start + len(table), : table.shape[1]] = table
        start += len(table)
    return stacked
