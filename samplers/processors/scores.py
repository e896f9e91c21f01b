"""The scores of a group of rows on their way through the chain."""

from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor

from samplers.ops import filters
from samplers.ops.draw import uniform
from samplers.ops.entropix import AttentionStatistics, Decision, SamplingTensors
from samplers.ops.rows import Rows


@dataclass
class Scores(Rows):
    """What the processors read and change; B rows, V codes, W columns of history."""

    logits: Tensor  # (B, V) float32, as the processors so far left them; -inf is excluded
    lengths: Tensor  # (B, 1) int64, frames drawn
    recent: Tensor  # (B, W) int64, the history, newest first, -1 before its beginning
    # as `recent`, but what penalties count: with `penalty_includes_prompt` the codes of the voice's
    # prompt come before the history
    counted: Tensor
    runs: Tensor  # (B, W) int64 of `samplers.ops.repeats.runs_of` over `counted`
    keys: Tensor  # (B, 1) int64, key of each row's random stream
    attempts: Tensor  # (B, 1) int64, how often each row was rewound
    _: KW_ONLY
    limits: Tensor | None = None  # (B, 1) int64, how many frames each row may have
    # statistics of the model's attention; entropix needs them
    attention: AttentionStatistics | None = None
    mu: Tensor | None = None  # (B, 1) float32 bits, mirostat's state; None if no row has it on
    # (B, 1) int64, the frame at which entropix last paused or branched; None if no row may
    last_act: Tensor | None = None
    # (B, 1) float32, the temperature that was divided by, 0 where greedy
    divisor: Tensor | None = None
    # temperature, top_p, top_k and min_p as entropix adjusted them; None without it
    adjusted: SamplingTensors | None = None
    decision: Decision | None = None  # what else entropix decided; None without it
    _ordered: Tensor | None = field(default=None, init=False, repr=False)
    _floors: list[Tensor] = field(default_factory=list, init=False, repr=False)

    @property
    def ordered(self) -> Tensor:
        """The logits sorted, largest first, ``(B, V)``; cached for filters that follow."""
        if self._ordered is None:
            self._ordered = filters.descending(self.logits)
        for floor in self._floors:
            self._ordered = filters.keep_from(self._ordered, floor)
        self._floors.clear()
        return self._ordered

    @property
    def best(self) -> Tensor:
        """The largest logit of each row, ``(B, 1)``."""
        if self._ordered is None:
            return self.logits.amax(-1, keepdim=True)
        return self._ordered[:, :1]  # which no floor excludes

    def replace(self, logits: Tensor) -> None:
        """Set the logits, ``(B, V)`` float32, and forget the sorted ones."""
        self.logits, self._ordered = logits, None
        self._floors.clear()

    def keep_from(self, floor: Tensor) -> None:
        """Exclude logits below a ``(B, 1)`` floor; sorted ones stay sorted, when next asked for."""
        self.logits = filters.keep_from(self.logits, floor)
        if self._ordered is not None:
            self._floors.append(floor)

    def noise(self, draw: Tensor | int, width: int) -> Tensor:
        """Return uniform noise for the next code, ``(B, width)``; each `Draw` has its own."""
        return uniform(self.keys, width, step=self.lengths, attempt=self.attempts, draw=draw)

    def knob(self, name: str, own: Tensor) -> Tensor:
        """Return a knob of `SamplingTensors`, ``(B, 1)``: as entropix adjusted it, else ``own``."""
        value: Tensor = own if self.adjusted is None else getattr(self.adjusted, name)
        return value

    def ones(self) -> Tensor:
        """Return ``(B, 1)`` float32 ones on the device of the scores."""
        return torch.ones(self.lengths.shape, dtype=torch.float32, device=self.logits.device)
