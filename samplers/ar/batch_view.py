"""The rows of a step, as long as they stay the same: what it reads of the table and writes."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from samplers.ar.history import HistoryView
from samplers.ar.pipeline import Pipeline
from samplers.ar.row_guidance import RowGuidance
from samplers.ar.state import HostColumn, RowInput, SlotTable
from samplers.ops.repeats import next_runs
from samplers.processors.processor import Scores
from samplers.processors.sample import SampleResult


class RowNumbers(NamedTuple):
    """What the host wrote of B rows, each ``(B, 1)`` int64; see `HostColumn`."""

    keys: Tensor
    attempts: Tensor
    prompts: Tensor
    avoided_until: Tensor
    unguided_until: Tensor
    limits: Tensor  # how many codes each may hold

    @classmethod
    def of(cls, numbers: Tensor) -> Self:
        """Return those of rows of `SlotTable.numbers`."""
        return cls(
            numbers[:, HostColumn.KEY, None],
            numbers[:, HostColumn.ATTEMPT, None],
            numbers[:, HostColumn.PROMPTED, None],
            numbers[:, HostColumn.AVOID_UNTIL, None],
            numbers[:, HostColumn.UNGUIDED_UNTIL, None],
            numbers[:, HostColumn.LIMIT, None],
        )


class BatchView:
    """B rows of a table in ascending slots, evenly spaced ones as views, others by index.

    Attributes:
        lengths: ``(B,)`` int64, frames sampled.
        stopped: ``(B,)`` bool, which have ended.
        numbers: What the host wrote of them.
        guidance: Of those that are guided.
    """

    def __init__(
        self,
        table: SlotTable,
        slots: Sequence[int],
        rows: Sequence[RowInput],
        vocab_size: int,
        stop_token: int,
    ) -> None:
        device = table.codes.device
        self._table = table
        self.slots = slots
        self.rows = rows
        self.pipeline = Pipeline(rows, vocab_size=vocab_size, stop_token=stop_token, device=device)
        apart = slots[1] - slots[0] if len(slots) > 1 else 1
        self._even = list(slots) == list(range(slots[0], slots[-1] + 1, apart))
        index = torch.tensor(slots, device=device)
        self._at = slice(slots[0], slots[-1] + 1, apart) if self._even else index
        self._history = HistoryView(table, slots, rows, index)
        # Where each row begins in the tables of states, read as one line of entries.
        self._states_at = (index * table.mu.shape[1])[:, None]
        self._tracks_runs = any(row.tracks_runs for row in rows)
        self.guidance = RowGuidance(rows, device)
        self._read()

    def load(self) -> None:
        """Read what steps and the host wrote; views are read once."""
        if not self._even:
            self._read()

    def _read(self) -> None:
        table = self._table
        self.lengths = table.lengths[self._at]
        self.stopped = table.stopped[self._at]
        self.numbers = RowNumbers.of(table.numbers[self._at])

    @property
    def beam_scores(self) -> Tensor:
        """``(B,)`` float32; see `SlotTable`."""
        return self._table.beam_scores[self._at]

    def put_beams(self, scores: Tensor) -> None:
        """Write ``(B,)`` scores of beams; a row that holds none has ended."""
        self._table.beam_scores[self._at] = scores
        self.stopped.logical_or_(scores == -torch.inf)

    def avoid(self, own: Tensor, guided: Tensor) -> Tensor:
        """Return ``(B, V)`` logits of `guide`, changed where attempts at these frames failed."""
        lengths = self.lengths[:, None]
        logits = torch.where(lengths < self.numbers.unguided_until, own, guided)
        lowered = logits + self._table.avoid[self._at]
        return torch.where(lengths < self.numbers.avoided_until, lowered, logits)

    def scores(self, logits: Tensor) -> Scores:
        """Return the scores of a step, of ``(B, V)`` float32 without NaN, before any processor."""
        table = self._table
        pipeline = self.pipeline
        lengths = self.lengths[:, None]
        numbers = self.numbers
        longest = self._history.longest
        width = min(pipeline.lookback, longest)
        recent, counted = self._history.read(lengths, numbers.prompts, width)
        runs = table.runs[self._at][:, :longest] if self._tracks_runs else counted
        scores = Scores(
            logits, lengths, recent, counted, runs, numbers.keys, numbers.attempts,
            limits=numbers.limits,
        )  # fmt: skip
        if pipeline.token_sampler.wants_mu:
            scores.mu = table.mu.take(self._states_at + lengths)
        if pipeline.acts:
            scores.last_act = table.last_act.take(self._states_at + lengths)
        return scores

    def append(self, codes: Tensor, stopped: Tensor, scores: Scores, sampled: SampleResult) -> None:
        """Write what a step drew: ``(B,)`` codes, and which rows have ended and so do not grow."""
        table = self._table
        lengths = self.lengths[:, None]
        if sampled.mu is not None:
            table.mu.put_(self._states_at + 1 + lengths, sampled.mu)
        if scores.last_act is not None and scores.decision is not None:
            acted = scores.decision.paused | scores.decision.branched
            last_act = torch.where(acted, lengths, scores.last_act)
            table.last_act.put_(self._states_at + 1 + lengths, last_act)
        # A row that does not grow writes behind its end.
        self._history.append(codes, lengths, self.numbers.prompts)
        grows = ~stopped
        if self._tracks_runs:
            self._append_runs(codes, grows, scores.counted)
        self.lengths += grows
        self.stopped.copy_(stopped)
        if not self._even:
            table.lengths[self._at] = self.lengths
            table.stopped[self._at] = self.stopped
        table.note_sampled(self.slots)

    def _append_runs(self, codes: Tensor, grows: Tensor, counted: Tensor) -> None:
        """Count the runs behind a new code; the history is that before it, the code in front."""
        table = self._table
        width = min(counted.shape[1] + 1, table.runs.shape[1])
        recent = torch.cat([codes[:, None], counted], 1)[:, :width]
        before = table.runs[self._at][:, :width]
        table.runs[self._at, :width] = torch.where(
            grows[:, None], next_runs(before, recent), before
        )
