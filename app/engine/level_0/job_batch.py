"""Level 0 of many jobs together: each has its rows, and draws one utterance after the other."""

import math
from collections.abc import Callable, Collection
from contextlib import ExitStack
from time import perf_counter

from app.engine.errors import SpeechError, broken
from app.engine.interface import Plan
from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.level_0.job import Level0Job, OnChunk, longest
from app.engine.level_0.masked import MaskedUtterance
from app.engine.level_0.runner import ArRunner
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel
from models.config import ModelConfig
from models.cuda.graphs import Record, as_it_is
from models.cuda.lost import is_device_lost
from models.prefix import MARKS
from models.prefix_cache import PrefixCache
from models.stack.paged_cache import PagePool

MAX_PREFILLS = 2
"""Utterances that are prefilled between two steps; more would delay the other jobs."""

_ALIGNED = 16  # positions: attention kernels on a GPU prefer multiples of it


class JobBatch:
    """Jobs whose level 0 is drawn together. One thread only.

    Args:
        make: Makes the level 0 of a plan, given what is called with each of its finished chunks.
        record: Records functions, on a GPU: whole steps are then played.
    """

    def __init__(
        self,
        speech: SpeechModel,
        make: Callable[[Plan, OnChunk], Level0Job],
        prefixes: PrefixCache,
        *,
        slots: int,
        record: Record = as_it_is,
        pool: PagePool | None = None,
    ) -> None:
        self._model, self._make, self._prefixes = speech.model, make, prefixes
        self._max_length = _max_length(speech.model.config, speech.codec.config.frame_rate_hz)
        self._pool = pool
        self._shared = ArRunner(
            speech.model, prefixes, slots=slots, max_length=self._max_length, pool=pool,
            record=record,
        )  # fmt: skip
        # Of jobs whose utterance needs longer slots.
        self._own: dict[Level0Job, ArRunner] = {}
        self._pins: dict[Level0Job, ExitStack] = {}  # of all jobs, in the prefix cache

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of all rows: in pages those in use, else all."""
        # Any thread may ask, while another closes the batch.
        runner: ArRunner | None = vars(self).get("_shared")
        return 0 if runner is None else runner.cache_bytes

    def begin(self, plan: Plan, on_chunk: OnChunk) -> Level0Job:
        """Add a job, whose rows must be free; the next step prefills its first utterance.

        `step` calls ``on_chunk`` with each finished chunk of the job, in order.
        """
        job = self._make(plan, on_chunk)
        self._pins[job] = pins = ExitStack()
        pins.enter_context(self._prefixes.pinned(*job.keys))
        return job

    def end(self, job: Level0Job) -> None:
        """Remove a job, whether it is over or not; its rows are free at once."""
        if isinstance(job.utterance, HypothesisGroup):
            self._runner_of(job).cancel(job.utterance)
        job.utterance, job.over = None, True
        self._own.pop(job, None)
        if (pins := self._pins.pop(job, None)) is not None:
            pins.close()

    def close(self) -> None:
        """Remove all jobs, and free the KV cache; the batch is of no more use."""
        for pins in self._pins.values():
            pins.close()
        self._pins.clear()
        self._own.clear()
        # Whoever holds the batch still, as the traceback of a crash does, must not hold its memory.
        self._shared.close()
        del self._shared
        self._pool = None

    def step(self, jobs: Collection[Level0Job]) -> None:
        """Draw a frame of each of some jobs; the others are paused.

        A job that fails has its `error` set, and does not affect the others.
        """
        started_s = perf_counter()
        for job in self._pins:
            group = job.utterance
            if isinstance(group, HypothesisGroup) and group.paused == (job in jobs):
                runner = self._runner_of(job)
                (runner.resume if group.paused else runner.pause)(group)
        fresh = [job for job in jobs if job.utterance is None and not job.over]
        for job in fresh[:MAX_PREFILLS]:
            self._prefill(job)
        self._shared.step()
        for job in jobs:
            if job in self._own:
                self._own[job].step()
            if isinstance(job.utterance, MaskedUtterance):
                job.utterance.step()
        step_s = perf_counter() - started_s
        for job in jobs:
            job.emit_finished_blocks(step_s)

    def _runner_of(self, job: Level0Job) -> ArRunner:
        return self._own.get(job, self._shared)

    def _prefill(self, job: Level0Job) -> None:
        """Begin a job's next utterance, if it has one."""
        self._own.pop(job, None)
        inputs = job.next_inputs()
        if inputs is None:
            return
        try:
            job.utterance = self._utterance(job, inputs)
        except SpeechError as error:
            job.fail(error)
        except Exception as error:
            if is_device_lost(error):
                raise
            job.fail(broken(job.plan.job.id, error))

    def _utterance(
        self, job: Level0Job, inputs: UtteranceInput
    ) -> HypothesisGroup | MaskedUtterance:
        model = self._model
        if inputs.params.level_0 == "masked":
            return MaskedUtterance(model, inputs)
        # Few utterances are so long: the shared slots need not have room for them.
        fits = max(map(len, inputs.ar_prefixes(model))) + inputs.max_frames <= self._max_length
        if fits:
            return self._shared.admit(inputs)
        own = self._own[job] = ArRunner.alone(model, self._prefixes, inputs, self._pool)
        return own.admit(inputs)


def _max_length(config: ModelConfig, frame_rate_hz: float) -> int:
    """Return the most positions of an utterance without context."""
    symbols = config.max_phonemes + 2
    length = config.max_prompt_frames + symbols + MARKS + longest(symbols, frame_rate_hz)
    return math.ceil(length / _ALIGNED) * _ALIGNED
