"""What changes the scores between the model and the sample: its base class, and what it reads."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from samplers.knobs.features import FEATURES, is_on
from samplers.knobs.params import SamplingParams
from samplers.knobs.steps import StepName
from samplers.ops import filters
from samplers.ops.entropix import KNOBS, Decision
from samplers.ops.rows import ALL, Rows, within
from samplers.ops.sample import uniform


@dataclass(frozen=True)
class BatchParams:
    """The B rows that a processor is built for; ``silent`` are the codes of silence."""

    params: Sequence[SamplingParams]
    vocab_size: int
    stop_token: int
    device: torch.device
    silent: Sequence[Sequence[int]]

    def take(self, rows: Sequence[int]) -> "BatchParams":
        """Return the params of some rows."""
        params = [self.params[row] for row in rows]
        return replace(self, params=params, silent=[self.silent[row] for row in rows])

    def any(self, *features: str) -> bool:
        """Return whether any row has any of these features on."""
        return any(is_on(feature, params) for feature in features for params in self.params)

    def is_on(self, feature: str) -> list[bool]:
        """Return for each row whether it has a feature on."""
        return [is_on(feature, params) for params in self.params]

    def column(self, values: Sequence[float], dtype: torch.dtype | None = None) -> Tensor:
        """Return a value a row, ``(B, 1)``, or the nearest that float32, int64 or bool can hold."""
        held = [within(value) for value in values]
        return torch.tensor(held, dtype=dtype, device=self.device)[:, None]

    def knob(self, feature: str, neutral: float) -> Tensor:
        """Return the knob of a feature, ``(B, 1)``; ``neutral``, where off, changes nothing."""
        name = FEATURES[feature].knob
        return self.column([
            getattr(p, name) if is_on(feature, p) else neutral for p in self.params
        ])

    def flags(self, values: Sequence[bool]) -> Tensor | None:
        """Return one truth value a row as ``(B, 1)`` bool; None if all are false."""
        return self.column(values) if any(values) else None

    def table(self, codes: Sequence[Sequence[int]]) -> Tensor | None:
        """Return the codes that each row lists, ``(B, V)`` bool; None if no row lists any."""
        if not any(codes):
            return None
        table = torch.zeros(len(codes), self.vocab_size, dtype=torch.bool)
        for row, listed in enumerate(codes):
            table[row, [code for code in listed if 0 <= code < self.vocab_size]] = True
        return table.to(self.device)

    @property
    def protected(self) -> Tensor | None:
        """The codes that filters must keep, ``(B, V)`` bool: the stop, under `protect_stop`."""
        return self.table([[self.stop_token] * params.protect_stop for params in self.params])


@dataclass
class Scores(Rows):
    """What the processors read and change; B rows, V codes, W columns of history."""

    logits: Tensor  # (B, V) float32, as the processors so far left them; -inf is excluded
    lengths: Tensor  # (B, 1) int64, frames sampled
    recent: Tensor  # (B, W) int64, the history, newest first, -1 before its beginning
    # as `recent`, but what penalties count: with `penalty_includes_prompt` the codes of the voice's
    # prompt come before the history
    counted: Tensor
    runs: Tensor  # (B, W) int64 of `samplers.ops.repeats.runs_of` over `counted`
    keys: Tensor  # (B, 1) int64, key of each row's random stream
    attempts: Tensor  # (B, 1) int64, how often each row was rewound
    _: KW_ONLY
    limits: Tensor | None = None  # (B, 1) int64, how many frames each row may have
    # (B, 4) float32 of `samplers.ops.entropix.ATTENTION`; entropix needs them
    attention: Tensor | None = None
    mu: Tensor | None = None  # (B, 1) float32 bits, mirostat's state; None if no row has it on
    # (B, 1) int64, the frame at which entropix last paused or branched; None if no row may
    last_act: Tensor | None = None
    # (B, 1) float32, the temperature that was divided by, 0 where greedy
    divisor: Tensor | None = None
    # (B, 4) float32 of `samplers.ops.entropix.KNOBS` as entropix adjusted them; None without it
    adjusted: Tensor | None = None
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
        self.logits = logits
        self._ordered = None
        self._floors.clear()

    def keep_from(self, floor: Tensor) -> None:
        """Exclude logits below a ``(B, 1)`` floor; sorted ones stay sorted, when next asked for."""
        self.logits = filters.keep_from(self.logits, floor)
        if self._ordered is not None:
            self._floors.append(floor)

    def noise(self, sample: Tensor | int, width: int) -> Tensor:
        """Return uniform noise for the next code, ``(B, width)``; one a `NoiseStream`."""
        return uniform(self.keys, width, step=self.lengths, attempt=self.attempts, sample=sample)

    def knob(self, name: str, own: Tensor) -> Tensor:
        """Return one of `KNOBS`, ``(B, 1)``: as entropix adjusted it, else ``own``."""
        return own if self.adjusted is None else self.adjusted[:, KNOBS.index(name), None]

    def ones(self) -> Tensor:
        """Return ``(B, 1)`` float32 ones on the device of the scores."""
        return torch.ones(self.lengths.shape, dtype=torch.float32, device=self.logits.device)


class HistoryReader:
    """What some features of a row need of the codes that it has sampled."""

    # keys of `samplers.knobs.features.FEATURES`: it acts on a row with any of them on
    features: ClassVar[tuple[str, ...]]
    # whether it reads `Scores.runs`, which are counted over the whole history
    reads_runs: ClassVar[bool] = False

    @classmethod
    def acts_on(cls, params: SamplingParams) -> bool:
        """Return whether it changes anything in a row with these params."""
        return any(is_on(feature, params) for feature in cls.features)

    @classmethod
    def lookback(cls, params: SamplingParams) -> int:  # noqa: ARG003
        """Return how many of the newest codes it reads in a row; `samplers.ops.rows.ALL`: all."""
        return ALL if cls.reads_runs else 0


class LogitsProcessor(HistoryReader, ABC):
    """A step of the chain, built for the rows of a batch and then called once a code.

    A row in which its features are off gets neutral values, with which not a bit of the row's
    scores changes: a row's codes do not depend on the other rows.
    """

    @abstractmethod
    def __init__(self, batch: BatchParams) -> None:
        """Read the params of the rows."""

    @abstractmethod
    def __call__(self, scores: Scores) -> None:
        """Change the scores of the rows, in place."""

    @classmethod
    def step(cls) -> StepName | None:
        """Return the step of `sampler_order` of its first feature; None if that is part of none."""
        return FEATURES[cls.features[0]].step


class Penalty(LogitsProcessor):
    """A step that changes what the model said; the others decide how a code is sampled."""
