"""The base class of what changes the scores between the model and the draw."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from samplers.knobs.features import FEATURES, is_on
from samplers.knobs.order import StepName
from samplers.knobs.params import SamplingParams
from samplers.ops.bounds import ALL
from samplers.processors.batch_params import BatchParams
from samplers.processors.scores import Scores


class HistoryReader:
    """What some features of a row need of the codes that it has drawn."""

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
        """Return how many of the newest codes it reads in a row; `samplers.ops.bounds.ALL`: all."""
        return ALL if cls.reads_runs else 0


class LogitsProcessor(HistoryReader, ABC):
    """A step of the chain, built for the rows of a batch and then called once a code.

    A row in which its features are off gets neutral values, with which not a bit of the row's
    scores changes: a row's codes do not depend on the other rows.
    """

    # whether it changes what the model said; the others decide how a code is drawn
    penalty: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, batch: BatchParams) -> None:
        """Read the params of the rows."""

    @abstractmethod
    def __call__(self, scores: Scores) -> None:
        """Change the scores of the rows, in place."""

    @classmethod
    def build(cls, batch: BatchParams) -> Self | None:
        """Return the processor for some rows; None if it would act on none of them."""
        return cls(batch) if batch.any(*cls.features) else None

    @classmethod
    def step(cls) -> StepName | None:
        """Return the step of `sampler_order` of its first feature; None if that is part of none."""
        return FEATURES[cls.features[0]].step
