"""Autoregressive level 0 of many utterances: they join, sample step by step together, and leave.

So do jobs (`ArStage`), which sample one utterance after the other.

A step writes what the host decided, feeds the model, samples, and reads what was sampled: at once
on a CPU, a step later on a GPU, where the host would else wait for each step before it queues the
next. There a step is several frames of plain rows (`GraphRunner.stride`). So there a row that drew
the stop samples nothing more by itself, and of a row that is rewound or given to another the
results of its old generation are dropped.

An utterance has the same codes, bit for bit, whichever others are in the batch: its slots, its rows
of the sampler and its noise are its own, and the stack computes row by row.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Self

import torch

from app.engine.ar.eager_runner import EagerRunner
from app.engine.ar.graph_runner import GraphRunner
from app.engine.ar.job import ArJob, OnMessage
from app.engine.ar.masked import MaskedUtterance
from app.engine.ar.model_runner import ArModelRunner, InFlightStep
from app.engine.ar.sequence import ArSequence
from app.engine.ar.sequence_group import ArSequenceGroup, SequenceOrGroup, sequence_or_group_of
from app.engine.ar.spec_builder import longest
from app.engine.core import Plan
from app.engine.errors import GenerationFailed, broken
from app.engine.interface import ArStream
from app.engine.results import SamplerMemory
from app.engine.utterance import UtteranceSpec
from gpu.graphs import Capture, eager
from gpu.lost import is_device_lost
from models.checkpoints.sources import SpeechModel
from models.config import ModelConfig
from models.prefix import MARKS, Prefix
from models.prefix_cache import PrefixCache
from models.stack.paged_cache import OutOfPages, PagePool
from models.stack.transformer import MAX_POSITIONS
from models.valle import Valle
from samplers.ar.trace import Trace, columns, log_prob_of
from samplers.knobs.features import sequences_of
from samplers.ops.rows import sanitise

MAX_PREFILLS = 2
"""Utterances that are prefilled for each frame of a step; more would delay the other jobs."""


class ArBatch:
    """Samples utterances together, a frame of each at a step. One thread only.

    A slot has ``max_length`` positions: a prefix and the frames after it. Keys and values are
    in the pages of a pool, as on a GPU, or each slot has its own.
    """

    def __init__(
        self,
        model: Valle,
        prefixes: PrefixCache,
        *,
        slots: int,
        max_length: int,
        pool: PagePool | None = None,
        capture: Capture = eager,
    ) -> None:
        self._prefixes = prefixes
        self._runner: ArModelRunner = (
            EagerRunner(model, slots, max_length)
            if pool is None
            else GraphRunner(model, pool, slots, max_length, capture)
        )
        self._running: list[SequenceOrGroup] = []
        self.frames = self._runner.stride  # of the step that was queued last
        self._in_flight: deque[tuple[InFlightStep, Mapping[SequenceOrGroup, Sequence[int]]]] = (
            deque()
        )

    @classmethod
    def single(
        cls,
        model: Valle,
        prefixes: PrefixCache,
        inputs: UtteranceSpec,
        pool: PagePool | None = None,
    ) -> Self:
        """Return a batch with just the slots that one utterance needs."""
        length = inputs.ar_positions(model)
        slots = sequences_of(inputs.params) * len(inputs.ar_prefixes(model))
        return cls(model, prefixes, slots=slots, max_length=length, pool=pool)

    @property
    def free_rows(self) -> int:
        """How many slots are free."""
        return self._runner.free

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of all slots: in pages those in use, else all."""
        return self._runner.cache.bytes

    @property
    def running(self) -> Sequence[SequenceOrGroup]:
        """The utterances that have not ended."""
        return tuple(self._running)

    @torch.inference_mode()
    def admit(
        self,
        inputs: UtteranceSpec,
        prefixes: Sequence[Prefix] = (),
        later: deque[UtteranceSpec] | None = None,
    ) -> SequenceOrGroup:
        """Add an utterance and run its prefixes, made anew if they are not given; steps sample it.

        ``later`` are its inputs with more and more of its text, at last with all, where it does not
        begin with that; they are taken as it is spoken.

        Raises ValueError if too few slots are free, or they are too short.
        """
        prefixes = prefixes or inputs.ar_prefixes(self._runner.model)
        longest = max(map(len, prefixes)) + inputs.max_frames + inputs.spare
        count = sequences_of(inputs.params) * len(prefixes)
        max_length = self._runner.cache.max_length
        if count > self.free_rows or longest > max_length:
            raise ValueError(
                f"{count} slots of {longest} positions asked for, {self.free_rows} of {max_length} "
                "are free"
            )
        queued = deque[UtteranceSpec]() if later is None else later
        sequences = self._runner.begin(self._prefixes, inputs, prefixes, queued)
        group = sequence_or_group_of(inputs, sequences)
        try:
            self._runner.add(group.sequences, sequences[0].inputs)
        except BaseException:
            self._runner.release(group.all)
            raise
        self._running.append(group)
        if isinstance(group, ArSequence):  # which may have kept frames, and go on with more text
            self._grow(group)
        return group

    @torch.inference_mode()
    def cancel(self, group: SequenceOrGroup) -> None:
        """End an utterance, if it has not ended, and free its rows."""
        if group.finish_reason is None:
            group.finish_reason = "cancelled"
            self._free(group)

    @torch.inference_mode()
    def close(self) -> None:
        """Let go of what would hold memory in a circle; the batch is of no more use."""
        self._in_flight.clear()
        self._runner.close()

    @torch.inference_mode()
    def step(self, only: Collection[SequenceOrGroup] | None = None) -> Sequence[SequenceOrGroup]:
        """Queue the next code of utterances, all or some, and read what has been sampled.

        Utterances that are left out keep their slots, and their codes are as if they had not been.
        Returns those that were running; those that ended have freed their rows.
        """
        groups = self.running
        sampling = list[SequenceOrGroup]()
        for group in groups:
            if only is not None and group not in only:
                continue
            if isinstance(group, ArSequence):
                self._grow(group)
                if group.waits:
                    continue
            sampling.append(group)
        self._make_room(sampling)
        self._read_until(self._launch([one for one in sampling if one.finish_reason is None]))
        return groups

    def _read_until(self, count: int) -> None:
        """Read the oldest steps under way, until so many are left."""
        while len(self._in_flight) > count:
            self._read(*self._in_flight.popleft())

    def _make_room(self, groups: Sequence[SequenceOrGroup]) -> None:
        """Take the memory that utterances need next; one fails alone where there is none."""
        for group in groups:
            try:
                for sequence in group.sequences:
                    if self._runner.has(sequence):
                        self._runner.make_room(sequence)
            except OutOfPages as error:
                if self._in_flight:  # of which some may end, this one too, and others go back
                    self._read_until(0)
                    self._make_room(groups)
                    return
                group.fail(GenerationFailed(f"no memory for keys and values: {error}"))
                self._free(group)

    def _launch(self, groups: Sequence[SequenceOrGroup]) -> int:
        """Queue a step of utterances; returns how many may be under way unread."""
        if not groups:
            return 0
        runner = self._runner
        rows = [(one, group) for group in groups for one in group.sequences if runner.has(one)]
        rows.sort(key=lambda row: row[0].slot)
        sequences = [one for one, _ in rows]
        places = dict[SequenceOrGroup, list[int]]()
        for place, (_, group) in enumerate(rows):
            places.setdefault(group, []).append(place)
        generations = [one.generation for one in sequences]
        if (fetch := runner.sample(sequences)) is not None:
            self._in_flight.append((InFlightStep(sequences, generations, fetch), places))
            self.frames = runner.stride
            return runner.lag
        self.frames = 1
        traced = [group.inputs.top_logprobs for group in groups if group.inputs.trace]
        trace = Trace(top=max(traced)) if traced else None
        fed = runner.feed(sequences)
        slots = [one.slot for one in sequences]
        result = runner.sampler.advance(
            fed.own, trace, fed.null, fed.attention, slots, fed.known_codes
        )
        logprobs = None
        if any(one.keeps_logprobs for one in sequences):
            logprobs = log_prob_of(sanitise(fed.own), result.codes)
        step = InFlightStep(sequences, generations, runner.fetch(fed, result.codes, logprobs))
        step.record = trace.records[0] if trace else None
        self._in_flight.append((step, places))
        if any(group.read_at_once for group in groups):
            step.own = fed.own
            step.result = result
            return 0
        return runner.lag

    def _read(self, step: InFlightStep, places: Mapping[SequenceOrGroup, Sequence[int]]) -> None:
        """Append what a step drew, frame by frame, and free the rows of utterances that end."""
        frames = step.fetch()
        ahead = self._runner.foresee(step, frames, step.fresh(range(len(step.sequences))))
        for arrived, paths in zip(frames, ahead, strict=True):
            # Of a row that ended, or went back, what was sampled behind that is nobody's.
            current = {group: fresh for group, own in places.items() if (fresh := step.fresh(own))}
            for place in step.fresh([*paths]):
                if (progress := step.sequences[place].progress) is not None:
                    progress.path.append(paths[place])
            for group, own in current.items():
                if not arrived.invalid.isdisjoint(own):
                    group.fail(GenerationFailed("the model gave logits that are no numbers"))
                elif isinstance(group, ArSequenceGroup):
                    group.read(self._runner, step, arrived, own)
                else:
                    self._runner.append(step, arrived, *own)
                    self._grow(group)
                if group.finish_reason is not None:
                    self._free(group)

    def _grow(self, sequence: ArSequence) -> None:
        """Give a sequence more of its text, if its next frame is drawn with that."""
        if sequence.waits:
            sequence.generation += 1  # what is queued knows too little
        elif sequence.finish_reason is None and sequence.is_due:
            try:
                self._runner.grow(self._prefixes, sequence)
            except OutOfPages as error:
                sequence.fail(GenerationFailed(f"no memory for keys and values: {error}"))

    def _free(self, group: SequenceOrGroup) -> None:
        """Free the rows and slots of an utterance that has ended."""
        if group in self._running:
            self._running.remove(group)
        if group.finish_reason not in {"cancelled", "error"}:
            best = group.sequences[0]
            inputs = group.inputs
            group.backtracks = tuple(best.backtracker.taken) if best.backtracker else ()
            group.spoken = best.progress.spoken if best.progress else None
            group.trace = columns(best.records, top=inputs.top_logprobs) if inputs.trace else None
            memory = None
            if self._runner.has(best):
                memory = self._runner.sampler.memory(best.slot, len(best.codes))
            if memory is not None:
                group.memory = SamplerMemory(*(one.numpy() for one in memory))
        self._runner.release(group.all)


class ArStage:
    """Jobs whose level 0 is sampled together. One thread only.

    ``make`` makes the level 0 of a plan, given what is called with each of its messages;
    ``capture`` captures functions, on a GPU: whole steps are then replayed.
    """

    def __init__(
        self,
        speech: SpeechModel,
        make: Callable[[Plan, OnMessage], ArJob],
        prefixes: PrefixCache,
        *,
        slots: int,
        capture: Capture = eager,
        pool: PagePool | None = None,
    ) -> None:
        self._model = speech.model
        self._make = make
        self._prefixes = prefixes
        # Where a kernel attends, positions that are not seen cost nothing but entries of a table.
        wide = pool is not None and speech.model.transformer.kernels.runs("attend")
        usual = _max_length(speech.model.config, speech.codec.config.frame_rate_hz)
        self._max_length = MAX_POSITIONS if wide else usual
        self._pool = pool
        self._shared = ArBatch(
            speech.model, prefixes, slots=slots, max_length=self._max_length, pool=pool,
            capture=capture,
        )  # fmt: skip
        self._jobs: dict[ArStream, ArJob] = {}  # each under itself, as others know it
        # Of jobs whose utterance needs longer slots.
        self._own: dict[ArJob, ArBatch] = {}
        self._pins: dict[ArJob, ExitStack] = {}  # of all jobs, in the prefix cache

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of all rows: in pages those in use, else all."""
        # Any thread may ask, while another closes the batch.
        batch: ArBatch | None = vars(self).get("_shared")
        return 0 if batch is None else batch.cache_bytes

    def begin(self, plan: Plan, on_message: OnMessage) -> ArJob:
        """Add a job, whose rows must be free; the next step prefills its first utterance.

        `step` calls ``on_message`` with each message of the job, in order.
        """
        job = self._make(plan, on_message)
        self._jobs[job] = job
        self._pins[job] = pins = ExitStack()
        pins.enter_context(self._prefixes.pinned(*job.keys))
        return job

    def extend(self, job: ArStream, plan: Plan) -> None:
        """Give a job a plan of more of its text."""
        self._jobs[job].extend(plan)

    def end(self, job: ArStream) -> None:
        """Remove a job, whether it is over or not; its rows are free at once."""
        if (known := self._jobs.pop(job, None)) is not None:
            self._end(known)

    def _end(self, job: ArJob) -> None:
        if isinstance(job.utterance, SequenceOrGroup):
            self._own.get(job, self._shared).cancel(job.utterance)
        job.utterance = None
        job.over = True
        self._own.pop(job, None)
        self._pins.pop(job).close()

    def close(self) -> None:
        """Remove all jobs, and free the KV cache; the batch is of no more use."""
        for pins in self._pins.values():
            pins.close()
        self._pins.clear()
        self._own.clear()
        self._jobs.clear()
        # Whoever holds the batch still, as the traceback of a crash does, must not hold its memory.
        self._shared.close()
        del self._shared
        self._pool = None

    def step(self, jobs: Collection[ArStream]) -> None:
        """Sample a step of some jobs; the others are paused.

        A job that fails has its `error` set, and does not affect the others.
        """
        started_s = perf_counter()
        sampling = [self._jobs[job] for job in jobs]
        prefills = MAX_PREFILLS * self._shared.frames
        groups = list[SequenceOrGroup]()
        masked = list[MaskedUtterance]()
        for job in sampling:
            if prefills and job.utterance is None and not job.over:
                prefills -= 1
                self._prefill(job)
            if isinstance(job.utterance, MaskedUtterance):
                masked.append(job.utterance)
            elif job.utterance is not None:
                groups.append(job.utterance)
        for batch in (self._shared, *self._own.values()):
            batch.step(groups)
        for utterance in masked:
            utterance.step()
        step_s = perf_counter() - started_s
        for job in sampling:
            job.emit_finished_blocks(step_s)

    def _prefill(self, job: ArJob) -> None:
        """Begin a job's next utterance, if it has one."""
        self._own.pop(job, None)
        inputs = job.next_inputs()
        if inputs is None:
            return
        try:
            job.utterance = self._utterance(job, inputs)
        except Exception as error:
            if is_device_lost(error):
                raise
            job.fail(broken(job.plan.job.id, error))

    def _utterance(self, job: ArJob, inputs: UtteranceSpec) -> SequenceOrGroup | MaskedUtterance:
        model = self._model
        if inputs.params.level_0 == "masked":
            return MaskedUtterance(model, inputs)
        # Few utterances are so long: the shared slots need not have room for them.
        prefixes = inputs.ar_prefixes(model)
        if max(map(len, prefixes)) + inputs.max_frames + inputs.spare <= self._max_length:
            return self._shared.admit(inputs, prefixes, job.later)
        own = self._own[job] = ArBatch.single(model, self._prefixes, inputs, self._pool)
        return own.admit(inputs, prefixes, job.later)


def _max_length(config: ModelConfig, frame_rate_hz: float) -> int:
    """Return the most positions of an utterance without context."""
    symbols = config.max_phonemes + 2
    said = symbols * (config.prompt == "response")
    return config.max_prompt_frames + said + symbols + MARKS + longest(symbols, frame_rate_hz)
