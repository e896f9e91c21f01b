"""An utterance decoded to its codes, with no sound: what the service does, driven by a test."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from app.engine.job import Backtrack, FinishReason, TraceColumns
from app.engine.level_0.hypothesis_group import Drawn
from app.engine.level_0.masked import MaskedUtterance
from app.engine.level_0.runner import ArRunner
from app.engine.sound.levels import Levels
from app.engine.utterance import UtteranceInput
from models.prefix_cache import PrefixCache
from models.valle import Valle

OnFrame = Callable[[int], bool]
"""Called with the count after every frame; False stops."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One utterance as codes ``[T, K]`` int64, and why it ended.

    K is fewer than the model's levels if `nar_levels` asks for fewer, or the job was cancelled.
    The trace is there if the piece asked for it.
    """

    codes: Tensor
    finish_reason: FinishReason
    trace: TraceColumns | None = None
    backtracks: tuple[Backtrack, ...] = ()


def decode_utterance(
    model: Valle, codebooks: Tensor, inputs: UtteranceInput, on_frame: OnFrame = lambda _: True
) -> Decoded:
    """Decode one utterance; level 0 alone if it was cancelled."""
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
        if drawn.finish_reason != "stop" and not on_frame(len(drawn)):
            return Decoded(drawn.level_0()[:, None], "cancelled")
    finer = Levels(model, codebooks, inputs, prefixes)
    for window in finer.cut(drawn.level_0(), ended=True):
        finer.draw(window)
    return Decoded(finer.codes, drawn.finish_reason, drawn.trace, drawn.backtracks)
