"""The rows of a step, as long as they stay the same: what it reads, and what logits go through."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from samplers.ar.effects import Effects
from samplers.ar.state import HostColumn, RowInput, SlotTable, lookback
from samplers.knobs.features import is_guided
from samplers.knobs.steps import Order, arrange
from samplers.ops.entropix import Decision
from samplers.ops.guidance import guide
from samplers.ops.repeats import next_runs
from samplers.ops.rows import within
from samplers.processors.entropix import Entropix
from samplers.processors.processor import BatchParams, LogitsProcessor, Penalty, Scores
from samplers.processors.registry import BY_STEP, FIXED
from samplers.processors.sample import SampleResult, TokenSampler


@dataclass(frozen=True)
class OrderGroup:
    """Rows with the same order of steps: those at ``index (n,)``, or all.

    ``penalties`` come before the first processor that decides how a code is sampled.
    """

    index: Tensor | None
    penalties: Sequence[LogitsProcessor]
    filters: Sequence[LogitsProcessor]


class Pipeline:
    """What a batch's logits go through before and in the sample; it has no state of its own.

    Processors read the `lookback` newest codes.
    """

    def __init__(
        self,
        rows: Sequence[RowInput],
        *,
        vocab_size: int,
        stop_token: int,
        device: torch.device,
    ) -> None:
        params = [row.params for row in rows]
        silent = [row.silent for row in rows]
        batch = BatchParams(params, vocab_size, stop_token, device, silent)
        orders = [arrange(p.sampler_order, temperature_last=p.temperature_last) for p in params]
        self._groups = [_group(batch, orders, order) for order in dict.fromkeys(orders)]
        self.token_sampler = TokenSampler(batch)
        longest = max(row.max_frames + row.prompted for row in rows)
        self.lookback = min(max(lookback(p) for p in params), longest)
        self.acts = any(row.acts for row in rows)  # whether entropix may pause or branch in any row
        beams: dict[RowInput, list[int]] = {}
        for place, row in enumerate(rows):
            if row.params.beam_width:
                beams.setdefault(row, []).append(place)
        self.searches = list(beams.values())  # the rows of each beam search

    def run(
        self, scores: Scores, *, tracing: bool, effects: Effects | None = None
    ) -> Tensor | None:
        """Apply the processors to scores, in place; return ``(B, V)`` logits after penalties.

        The result may be None if not tracing. What each processor did is noted in the effects.
        """
        if len(self._groups) == 1:
            return _apply(self._groups[0], scores, effects)
        penalised = scores.logits.clone() if tracing else None
        logits = scores.logits.clone()
        divisor = scores.ones()
        decision = None
        for group in self._groups:
            assert group.index is not None
            part = scores.take(group.index)
            penalised_part = _apply(group, part, effects)
            logits.index_copy_(0, group.index, part.logits)
            if penalised is not None:
                penalised.index_copy_(0, group.index, penalised_part)
            if part.divisor is not None:
                divisor.index_copy_(0, group.index, part.divisor)
            if part.decision is not None:
                decision = decision or Decision.none(len(logits), logits.device)
                for field in fields(Decision):
                    whole, own = (getattr(one, field.name) for one in (decision, part.decision))
                    whole.index_copy_(0, group.index, own)
        scores.replace(logits)
        scores.divisor = divisor
        scores.decision = decision
        return penalised


def _group(batch: BatchParams, orders: Sequence[Order], order: Order) -> OrderGroup:
    members = [row for row, other in enumerate(orders) if other == order]
    movable = [processor for step in order for processor in BY_STEP[step]]
    # From the first that is no penalty on, all decide how a code is sampled: entropix comes there.
    others = (at for at, one in enumerate(movable) if not issubclass(one, Penalty))
    border = next(others, len(movable))
    part = batch.take(members)
    return OrderGroup(
        None if len(members) == len(orders) else torch.tensor(members, device=batch.device),
        _build([*FIXED, *movable[:border]], part),
        _build([Entropix, *movable[border:]], part),
    )


def _build(
    processors: Sequence[type[LogitsProcessor]], batch: BatchParams
) -> list[LogitsProcessor]:
    """Return those of the processors that act on any of the rows."""
    return [processor(batch) for processor in processors if batch.any(*processor.features)]


def _apply(group: OrderGroup, scores: Scores, effects: Effects | None) -> Tensor:
    """Apply a group's processors; returns ``(n, V)``, the logits after penalties."""
    for processor in group.penalties:
        _run(processor, scores, effects, group.index)
    penalised = scores.logits
    for processor in group.filters:
        _run(processor, scores, effects, group.index)
    return penalised


def _run(
    processor: LogitsProcessor, scores: Scores, effects: Effects | None, rows: Tensor | None
) -> None:
    """Apply one processor, and note what it did."""
    before = scores.logits
    processor(scores)
    if effects is not None:
        effects.note(processor.features[0], before, scores.logits, rows)


class BatchView:
    """B rows of a table in ascending slots, evenly spaced ones as views, others by index.

    Attributes:
        lengths: ``(B,)`` int64, frames sampled.
        stopped: ``(B,)`` bool, which have ended.
        limits: ``(B, 1)`` int64, how many codes each may hold.
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
        # Where each row begins in the tables, read as one line of entries.
        self._codes_at = (index * table.codes.shape[1])[:, None]
        self._states_at = (index * table.mu.shape[1])[:, None]
        self._back = torch.arange(1, table.codes.shape[1] + 1, device=device)
        self._newest = self._nothing = table.codes[: len(slots), :0]
        self._prompted = max(row.prompted for row in rows)
        self._held = [(slot, row.prompted) for slot, row in zip(slots, rows, strict=True)]
        self._tracks_runs = any(row.tracks_runs for row in rows)
        guided = [place for place, row in enumerate(rows) if is_guided(row.params)]
        self._guided = torch.tensor(guided, device=device) if len(guided) < len(rows) else None
        knobs = [
            (within(rows[place].params.cfg_strength), rows[place].params.cfg_rescale)
            for place in guided
        ]
        self._guidance = torch.tensor(knobs, device=device).unbind(1) if guided else None
        self._read()

    def load(self) -> None:
        """Read what steps and the host wrote; views are read once."""
        if not self._even:
            self._read()

    def _read(self) -> None:
        table = self._table
        self.lengths = table.lengths[self._at]
        self.stopped = table.stopped[self._at]
        numbers = table.numbers[self._at]
        self._keys = numbers[:, HostColumn.KEY, None]
        self._attempts = numbers[:, HostColumn.ATTEMPT, None]
        self._prompts = numbers[:, HostColumn.PROMPTED, None]
        self._avoided_until = numbers[:, HostColumn.AVOID_UNTIL, None]
        self._unguided_until = numbers[:, HostColumn.UNGUIDED_UNTIL, None]
        self.limits = numbers[:, HostColumn.LIMIT, None]

    @property
    def beam_scores(self) -> Tensor:
        """``(B,)`` float32; see `SlotTable`."""
        return self._table.beam_scores[self._at]

    def put_beams(self, scores: Tensor) -> None:
        """Write ``(B,)`` scores of beams; a row that holds none has ended."""
        self._table.beam_scores[self._at] = scores
        self.stopped.logical_or_(scores == -torch.inf)

    def guide(self, own: Tensor, null: Tensor | None) -> Tensor:
        """Return ``(B, V)`` logits, guided by those without text ``(G, V)`` of guided rows."""
        if null is None or self._guidance is None:
            return own
        if self._guided is None:
            return guide(own[:, None], null[:, None], *self._guidance)[:, 0]
        with_text = own.index_select(0, self._guided)
        moved = guide(with_text[:, None], null[:, None], *self._guidance)[:, 0]
        return own.index_copy(0, self._guided, moved)

    def avoid(self, own: Tensor, guided: Tensor) -> Tensor:
        """Return ``(B, V)`` logits of `guide`, changed where attempts at these frames failed."""
        lengths = self.lengths[:, None]
        logits = torch.where(lengths < self._unguided_until, own, guided)
        lowered = logits + self._table.avoid[self._at]
        return torch.where(lengths < self._avoided_until, lowered, logits)

    def scores(self, logits: Tensor) -> Scores:
        """Return the scores of a step, of ``(B, V)`` float32 without NaN, before any processor."""
        table = self._table
        pipeline = self.pipeline
        lengths = self.lengths[:, None]
        longest = max(table.held[slot] + prompt for slot, prompt in self._held)
        width = min(pipeline.lookback, longest)
        recent = counted = self._nothing
        if width:
            if self._newest.shape[1] != width:
                self._newest = self._codes_at - self._back[:width]
            ends = lengths + self._prompts if self._prompted else lengths
            places = self._newest + ends
            # Before a row's beginning lies another row, or the end of the table: any code.
            found = table.codes.take(places)
            recent = counted = found.masked_fill_(places < self._codes_at, -1)
            if self._prompted:
                recent = counted.masked_fill(places < self._codes_at + self._prompts, -1)
        runs = table.runs[self._at][:, :longest] if self._tracks_runs else counted
        scores = Scores(
            logits, lengths, recent, counted, runs, self._keys, self._attempts, limits=self.limits
        )
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
        places = self._codes_at + lengths
        table.codes.put_(places + self._prompts if self._prompted else places, codes[:, None])
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
