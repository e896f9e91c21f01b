"""The steps in their order: what a batch's scores go through between the model and the draw."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from samplers.knobs.order import PENALTIES, Order, arrange
from samplers.ops.entropix import Decision
from samplers.processors.batch_params import BatchParams
from samplers.processors.entropix import EntropixStep
from samplers.processors.scores import Scores, Step
from samplers.processors.steps import FIXED, MOVABLE


@dataclass(frozen=True)
class Group:
    """Rows that share an order.

    Attributes:
        index: ``(n,)`` int64, which rows; None if all.
        weigh: Steps up to the first that decides how to draw.
        truncate: The rest.
    """

    index: Tensor | None
    weigh: Sequence[Step]
    truncate: Sequence[Step]


class Pipeline:
    """The steps of a batch, one pass for each order that its rows ask for."""

    def __init__(self, rows: BatchParams, silent: Sequence[Tensor | None]) -> None:
        """Build the steps.

        Args:
            rows: The rows.
            silent: ``(V,)`` bool a row, the codes of silence, or None.
        """
        self._silent = silent
        orders = [
            arrange(p.sampler_order, temperature_last=p.temperature_last) for p in rows.params
        ]
        self._groups = [self._group(rows, orders, order) for order in dict.fromkeys(orders)]

    def run(self, scores: Scores, *, tracing: bool) -> Tensor | None:
        """Take the scores through the steps.

        Args:
            scores: Those of the model; left as they are to be drawn from.
            tracing: Whether the result is wanted.

        Returns:
            ``(B, V)``, what they were after bans and penalties; None if it is not wanted.
        """
        if len(self._groups) == 1:
            return _pass(self._groups[0], scores)
        weighed = scores.logits.clone() if tracing else None
        logits, divisor = scores.logits.clone(), scores.ones()
        decision = None
        for group in self._groups:
            assert group.index is not None
            part = scores.take(group.index)
            weighed_part = _pass(group, part)
            logits.index_copy_(0, group.index, part.logits)
            if weighed is not None:
                weighed.index_copy_(0, group.index, weighed_part)
            if part.divisor is not None:
                divisor.index_copy_(0, group.index, part.divisor)
            if part.decision is not None:
                decision = decision or Decision.none(len(logits), logits.device)
                _put(decision, group.index, part.decision)
        scores.replace(logits)
        scores.divisor, scores.decision = divisor, decision
        return weighed

    def _group(self, rows: BatchParams, orders: Sequence[Order], order: Order) -> Group:
        members = [row for row, other in enumerate(orders) if other == order]
        alone = len(members) == len(orders)
        part = BatchParams(
            [rows.params[r] for r in members], rows.vocab_size, rows.stop_token, rows.device
        )
        border = next((i for i, name in enumerate(order) if name not in PENALTIES), len(order))
        weighing = [*FIXED, *(MOVABLE[name] for name in order[:border])]
        truncating = [step for name in order[border:] if (step := MOVABLE[name](part)) is not None]
        if part.any("entropix"):
            truncating.insert(0, EntropixStep(part, [self._silent[row] for row in members]))
        return Group(
            None if alone else torch.tensor(members, device=rows.device),
            [step for build in weighing if (step := build(part)) is not None],
            truncating,
        )


def _pass(group: Group, scores: Scores) -> Tensor:
    """Take a group through its steps; returns ``(n, V)`` before truncation."""
    for step in group.weigh:
        step(scores)
    weighed = scores.logits
    for step in group.truncate:
        step(scores)
    return weighed


def _put(whole: Decision, rows: Tensor, part: Decision) -> None:
    for field in fields(Decision):
        getattr(whole, field.name).index_copy_(0, rows, getattr(part, field.name))
