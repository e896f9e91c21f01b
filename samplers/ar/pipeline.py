"""What the logits of some rows go through before and in the sample."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from samplers.ar.effects import Effects
from samplers.ar.state import RowInput, lookback
from samplers.knobs.steps import Order, arrange
from samplers.ops.entropix import Decision
from samplers.processors.entropix import Entropix
from samplers.processors.processor import BatchParams, LogitsProcessor, Penalty, Scores
from samplers.processors.registry import BY_STEP, FIXED
from samplers.processors.sample import TokenSampler


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
