"""An utterance decoded to its codes, with no sound: what the service does, driven by a test."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from app.engine.ar.masked import MaskedUtterance
from app.engine.ar.sequence_group import SequenceOrGroup
from app.engine.ar.stage import ArBatch
from app.engine.nar.state import NarState
from app.engine.results import FinishReason, TraceColumns, UtteranceResult
from app.engine.utterance import UtteranceSpec
from models.prefix_cache import PrefixCache
from models.valle import Valle


@dataclass(frozen=True, slots=True)
class Decoded:
    """One utterance as codes ``[T, K]`` int64, why it ended, and its trace if it asked for one."""

    codes: Tensor
    finish_reason: FinishReason
    trace: TraceColumns | None = None


def spoken(codes: Tensor) -> UtteranceResult:
    """Return the result of an utterance of codes ``[T, K]``."""
    return UtteranceResult(codes.numpy().astype(np.int16), "stop")


def decode_utterance(model: Valle, codebooks: Tensor, inputs: UtteranceSpec) -> Decoded:
    sampled: SequenceOrGroup | MaskedUtterance
    prefixes = PrefixCache(model)
    if inputs.params.level_0 == "masked":
        sampled = masked = MaskedUtterance(model, inputs)
        step: Callable[[], object] = masked.step
    else:
        runner = ArBatch.single(model, prefixes, inputs)
        sampled, step = runner.admit(inputs), runner.step
    while sampled.finish_reason is None:
        step()
        if sampled.error is not None:
            raise sampled.error
    nar = NarState(model, codebooks, inputs, prefixes)
    for window in nar.cut(sampled.ar_codes(), ended=True):
        nar.sample(window)
    return Decoded(nar.codes, sampled.finish_reason, sampled.trace)
