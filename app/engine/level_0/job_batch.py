"""Level 0 of many jobs at once: each has its rows, and draws one utterance after the other."""

import math
from collections.abc import Collection
from contextlib import ExitStack
from time import perf_counter

from torch import Tensor

from app.engine.errors import SpeechError, broken
from app.engine.interface import Plan
from app.engine.level_0.job import Level0Job, longest
from app.engine.level_0.masked import MaskedUtterance
from app.engine.level_0.runner import ArRunner
from app.engine.level_0.utterance import ArUtterance
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel
from models.config import ModelConfig
from models.prefix_cache import PrefixCache
from models.text import FrontEnd

MAX_PREFILLS = 2
"""Utterances whose text is read between two steps; more would make the others wait."""

_ALIGNED = 16  # positions: what attention on a GPU likes a slot to be a multiple of
_MARKS = 4  # language, separators and the like, beside the symbols of a text


class JobBatch:
    """Jobs whose level 0 is drawn together. One thread only."""

    def __init__(
        self,
        speech: SpeechModel,
        *,
        front_end: FrontEnd,
        silent: Tensor,
        prefixes: PrefixCache,
        slots: int,
    ) -> None:
        """Begin with no jobs.

        Args:
            speech: The model.
            front_end: Gives the ids of phonemes.
            silent: ``(V,)`` bool, the codes of silence.
            prefixes: Where what prefixes share comes from.
            slots: How many rows a step may have.
        """
        self._speech, self._front_end, self._silent = speech, front_end, silent
        self._prefixes = prefixes
        self._room = _room(speech.model.config, speech.codec.config.frame_rate_hz)
        self._shared = ArRunner(
            speech.model, prefixes, slots=slots, max_length=self._room, recorded=True
        )
        self._apart: dict[Level0Job, ArRunner] = {}
        self._pins: dict[Level0Job, ExitStack] = {}

    def begin(self, plan: Plan) -> Level0Job:
        """Take a job, whose first text is read by the next step; its rows must be free."""
        drawing = Level0Job(self._speech, plan, front_end=self._front_end, silent=self._silent)
        self._pins[drawing] = pins = ExitStack()
        pins.enter_context(self._prefixes.pinned(*drawing.keys))
        return drawing

    def end(self, drawing: Level0Job) -> None:
        """Forget a job, whether it is over or not; its rows are free at once."""
        if isinstance(drawing.utterance, ArUtterance):
            self._batch_of(drawing).drop(drawing.utterance)
        drawing.utterance, drawing.over = None, True
        self._apart.pop(drawing, None)
        if (pins := self._pins.pop(drawing, None)) is not None:
            pins.close()

    def close(self) -> None:
        """Forget all jobs, in whatever state they are."""
        for pins in self._pins.values():
            pins.close()
        self._pins.clear()

    def step(self, going: Collection[Level0Job]) -> None:
        """Draw a frame of each of some jobs; the others wait where they are.

        What breaks of one job is its `error`, and does not concern the others.
        """
        started_s = perf_counter()
        for drawing in self._pins:
            self._pause_or_resume(drawing, drawing in going)
        fresh = [one for one in going if one.utterance is None and not one.over]
        for drawing in fresh[:MAX_PREFILLS]:
            self._prefill(drawing)
        self._shared.step()
        for drawing in going:
            if drawing in self._apart:
                self._apart[drawing].step()
            if isinstance(drawing.utterance, MaskedUtterance):
                drawing.utterance.step()
        took_s = perf_counter() - started_s
        for drawing in going:
            drawing.collect(took_s)

    def _pause_or_resume(self, drawing: Level0Job, goes: bool) -> None:
        if isinstance(drawing.utterance, ArUtterance):
            batch = self._batch_of(drawing)
            (batch.resume if goes else batch.pause)(drawing.utterance)

    def _batch_of(self, drawing: Level0Job) -> ArRunner:
        return self._apart.get(drawing, self._shared)

    def _prefill(self, drawing: Level0Job) -> None:
        """Read the text of a job's next utterance, if it has one."""
        self._apart.pop(drawing, None)
        inputs = drawing.next_inputs()
        if inputs is None:
            return
        try:
            drawing.utterance = self._utterance(drawing, inputs)
        except SpeechError as error:
            drawing.fail(error)
        except Exception as error:
            drawing.fail(broken(drawing.plan.job.id, error))

    def _utterance(
        self, drawing: Level0Job, inputs: UtteranceInput
    ) -> ArUtterance | MaskedUtterance:
        model = self._speech.model
        if inputs.params.level_0 == "masked":
            return MaskedUtterance(model, inputs)
        batch = self._shared
        if max(map(len, inputs.ar_prefixes(model))) + inputs.max_frames > self._room:
            # Few are so long, so the slots of all need not have room for them.
            batch = self._apart[drawing] = ArRunner.alone(model, self._prefixes, inputs)
        return batch.admit(inputs)


def _room(config: ModelConfig, frame_rate_hz: float) -> int:
    """Return how many positions an utterance takes that does not go on from others."""
    symbols = config.max_phonemes + 2
    room = config.max_prompt_frames + symbols + _MARKS + longest(symbols, frame_rate_hz)
    return math.ceil(room / _ALIGNED) * _ALIGNED
