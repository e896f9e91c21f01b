"""An utterance decoded to its codes, with no sound: what the service does, driven by a test."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from app.engine.job import Backtrack, FinishReason, TraceColumns
from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.level_0.masked import MaskedUtterance
from app.engine.level_0.runner import ArRunner
from app.engine.sound.levels import Work, levels_of
from app.engine.utterance import UtteranceInput
from models.prefix_cache import PrefixCache
from models.valle import Valle

OnFrame = Callable[[int], bool]
"""Called with the count after every frame; False stops."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One utterance as codes ``[T, K]`` int64, why it ended, and where the seconds went.

    K is fewer than the model's levels if `nar_levels` asks for fewer, or the job was cancelled.
    The trace is there if the piece asked for it.
    """

    codes: Tensor
    finish_reason: FinishReason
    ar_s: float
    nar_s: float
    trace: TraceColumns | None = None
    backtracks: tuple[Backtrack, ...] = ()


class LevelZero:
    """Level 0 of one utterance by itself: iterate for its frames, as they become final."""

    def __init__(
        self, model: Valle, inputs: UtteranceInput, on_frame: OnFrame, prefixes: PrefixCache
    ) -> None:
        self._model, self._inputs, self._on_frame = model, inputs, on_frame
        self._prefixes = prefixes
        self.drawn: HypothesisGroup | MaskedUtterance | None = None

    def __iter__(self) -> Iterator[Tensor]:
        self.drawn, step = self._begin()
        given = 0
        while self.drawn.finish_reason is None:
            step()
            if self.drawn.error is not None:
                raise self.drawn.error
            if self.drawn.finish_reason != "stop" and not self._on_frame(len(self.drawn)):
                self.drawn.finish_reason = "cancelled"
                return
            if self.drawn.final > given:
                start, given = given, self.drawn.final
                yield self.drawn.codes(start, given)

    def _begin(self) -> tuple[HypothesisGroup | MaskedUtterance, Callable[[], object]]:
        if self._inputs.params.level_0 == "masked":
            masked = MaskedUtterance(self._model, self._inputs)
            return masked, masked.step
        batch = ArRunner.alone(self._model, self._prefixes, self._inputs)
        return batch.admit(self._inputs), batch.step


def decode_utterance(
    model: Valle,
    codebooks: Tensor,
    inputs: UtteranceInput,
    on_frame: OnFrame,
    prefixes: PrefixCache | None = None,
) -> Decoded:
    """Decode one utterance; level 0 alone if it was cancelled."""
    started_s = perf_counter()
    prefixes = PrefixCache(model) if prefixes is None else prefixes
    level_0 = LevelZero(model, inputs, on_frame, prefixes)
    finer = levels_of(model, codebooks, inputs, prefixes)

    def draw(work: Sequence[Work]) -> list[Tensor]:
        return [chunk for one in work for chunk in finer.draw(one)]

    codes, nar_s = [finer.no_codes], 0.0
    for frames in level_0:
        begun_s = perf_counter()
        codes += draw(finer.cut(frames.cpu(), ended=False))
        nar_s += perf_counter() - begun_s
    drawn = level_0.drawn
    assert drawn is not None
    assert drawn.finish_reason is not None
    ar_s = perf_counter() - started_s - nar_s
    begun_s = perf_counter()
    if drawn.finish_reason == "cancelled":
        codes = [drawn.codes()[:, None]]
    else:
        codes += draw(finer.cut(drawn.codes()[:0].cpu(), ended=True))
    return Decoded(
        torch.cat(codes),
        drawn.finish_reason,
        ar_s,
        nar_s + perf_counter() - begun_s,
        drawn.trace,
        drawn.backtracks,
    )
