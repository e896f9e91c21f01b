"""An utterance decoded to its codes, with no sound: what the service does, driven by a test."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from app.engine.job import FinishReason, SpokenUtterance, TraceColumns
from app.engine.level_0.hypothesis_group import Drawn
from app.engine.level_0.masked import MaskedUtterance
from app.engine.level_0.runner import ArRunner
from app.engine.sound.levels import Levels
from app.engine.utterance import UtteranceInput
from models.prefix_cache import PrefixCache
from models.valle import Valle


@dataclass(frozen=True, slots=True)
class Decoded:
    """One utterance as codes ``[T, K]`` int64, why it ended, and its trace if it asked for one."""

    codes: Tensor
    finish_reason: FinishReason
    trace: TraceColumns | None = None


def spoken(codes: Tensor) -> SpokenUtterance:
    """Return the result of an utterance of codes ``[T, K]``."""
    return SpokenUtterance(codes.numpy().astype(np.int16), "stop")


def decode_utterance(model: Valle, codebooks: Tensor, inputs: UtteranceInput) -> Decoded:
    drawn: Drawn | MaskedUtterance
    prefixes = PrefixCache(model)
    if inputs.params.level_0 == "masked":
        drawn = masked = MaskedUtterance(model, inputs)
        step: Callable[[], object] = masked.step
    else:
        runner = ArRunner.alone(model, prefixes, inputs)
        drawn, step = runner.admit(inputs), runner.step
    while drawn.finish_reason is None:
        step()
        if drawn.error is not None:
            raise drawn.error
    finer = Levels(model, codebooks, inputs, prefixes)
    for window in finer.cut(drawn.level_0(), ended=True):
        finer.draw(window)
    return Decoded(finer.codes, drawn.finish_reason, drawn.trace)
