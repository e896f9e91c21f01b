"""The scores of a group of rows on their way through the chain."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor

from samplers.ops import filters
from samplers.ops.draw import Draw, uniform
from samplers.ops.entropix import AttentionStatistics, Decision, Knobs


@dataclass
class Scores:
    """What the steps read and change.

    Attributes:
        logits: ``(B, V)`` float32, what is left so far.
        lengths: ``(B, 1)`` int64, frames drawn.
        recent: ``(B, W)`` int64, the history, newest first, -1 before its beginning.
        heard: As ``recent``, but what the penalties count: with the voice's prompt before it in
            rows that say so.
        runs: ``(B, W)`` int64 of `samplers.ops.repeats.count_runs` over ``heard``, if a step needs
            it.
        keys: ``(B, 1)`` int64, each row's stream of noise.
        attempts: ``(B, 1)`` int64, how often each row was rewound.
        limits: ``(B, 1)`` int64, how many frames each row may have.
        attention: Of the model, if a row wants entropix.
        mu: ``(B, 1)`` float32 bits, mirostat's state, if a row has it on.
        last_act: ``(B, 1)`` int64, the frame where entropix last paused or branched, if a row does.
        divisor: ``(B, 1)`` float32, the temperature that was divided by, 0 where greedy.
        knobs: What entropix made of the rows' knobs; the rows' own where it is off.
        decision: What else entropix decided.
    """

    logits: Tensor
    lengths: Tensor
    recent: Tensor
    heard: Tensor
    runs: Tensor
    keys: Tensor
    attempts: Tensor
    _: KW_ONLY
    limits: Tensor | None = None
    attention: AttentionStatistics | None = None
    mu: Tensor | None = None
    last_act: Tensor | None = None
    divisor: Tensor | None = None
    knobs: Knobs | None = None
    decision: Decision | None = None
    _ordered: Tensor | None = field(default=None, init=False, repr=False)

    @property
    def ordered(self) -> Tensor:
        """The logits, largest first; sorted once for filters that follow one another."""
        if self._ordered is None:
            self._ordered = filters.descending(self.logits)
        return self._ordered

    @property
    def best(self) -> Tensor:
        """The largest logit of each row, ``(B, 1)``."""
        if self._ordered is None:
            return self.logits.amax(-1, keepdim=True)
        return self._ordered[:, :1]

    def replace(self, logits: Tensor) -> None:
        """Go on with other logits."""
        self.logits, self._ordered = logits, None

    def keep_from(self, floor: Tensor) -> None:
        """Remove what is below a ``(B, 1)`` floor; the sort stays valid."""
        self.logits = filters.keep_from(self.logits, floor)
        if self._ordered is not None:
            self._ordered = filters.keep_from(self._ordered, floor)

    def noise(self, draw: Draw | int, width: int) -> Tensor:
        """Uniform noise of this place, ``(B, width)``, another for each `Draw`."""
        return uniform(self.keys, width, step=self.lengths, attempt=self.attempts, draw=draw)

    def moved(self, knob: str, own: Tensor) -> Tensor:
        """A knob as entropix left it, where a row has that on; ``own`` where none has."""
        moved: Tensor = own if self.knobs is None else getattr(self.knobs, knob)
        return moved

    def take(self, rows: Tensor) -> "Scores":
        """The scores of some rows, by an ``(n,)`` int64 index; a row may be taken twice."""
        attention = None if self.attention is None else self.attention.take(rows)
        decision = None if self.decision is None else self.decision.take(rows)
        limits, mu, last_act, divisor = (
            None if column is None else column.index_select(0, rows)
            for column in (self.limits, self.mu, self.last_act, self.divisor)
        )
        return Scores(
            *(
                table.index_select(0, rows)
                for table in (
                    self.logits, self.lengths, self.recent, self.heard, self.runs, self.keys,
                    self.attempts,
                )
            ),
            limits=limits, attention=attention, mu=mu, last_act=last_act, divisor=divisor,
            decision=decision,
        )  # fmt: skip

    def ones(self) -> Tensor:
        """A ``(B, 1)`` float32 of ones on the scores' device."""
        return torch.ones(self.lengths.shape, dtype=torch.float32, device=self.logits.device)


Step = Callable[[Scores], None]
"""What a step of the chain does to the scores, in place."""
