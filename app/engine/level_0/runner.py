"""Autoregressive level 0 of many utterances: they join, draw a frame a step together, and leave.

A step writes what the host decided, feeds the model, draws, and reads what was drawn: at once on a
CPU, a step later on a GPU, where the host would else wait for each step before it queues the next.
So there a row that drew the stop draws nothing more by itself, and of a row that is rewound or
given to another the results of its old generation are dropped.

An utterance has the same codes, bit for bit, whichever others are in the batch: its slots, its rows
of the sampler and its noise are its own, and the stack computes row by row.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from app.engine.errors import GenerationFailed
from app.engine.job import SamplerMemory
from app.engine.level_0.backtracking import Backtracker
from app.engine.level_0.feed import Arrived, Feed, SlotFeed
from app.engine.level_0.hypothesis import Alternative, Hypothesis
from app.engine.level_0.hypothesis_group import (
    BeamSearch,
    BestOf,
    Branching,
    HypothesisGroup,
)
from app.engine.level_0.input_batch import InputBatch
from app.engine.level_0.paged_feed import PagedFeed
from app.engine.utterance import UtteranceInput
from models.cuda.graphs import Record, as_it_is
from models.prefix import Prefix
from models.prefix_cache import PrefixCache
from models.stack.paged_cache import OutOfPages, PagePool
from models.valle import Valle
from samplers.ar.sampler import ArSampler, StepResult
from samplers.ar.state import SlotTable
from samplers.ar.trace import Record as TraceRecord
from samplers.ar.trace import Trace, log_prob_of
from samplers.knobs.features import is_on, rows_needed
from samplers.ops.filters import sanitise


@dataclass(frozen=True)
class _Queued:
    """A step that was queued."""

    # The hypotheses that it draws for, with the group and the generation of each.
    rows: Sequence[tuple[Hypothesis, HypothesisGroup, int]]
    arrived: Callable[[], Arrived]  # gives what it drew; waits for no later step
    # ``[B, V]``, the model's logits, where the host reads more than codes, as ``result``.
    own: Tensor | None = None
    result: StepResult | None = None
    record: TraceRecord | None = None


class ArRunner:
    """Draws utterances together, a frame of each at a step. One thread only.

    Args:
        max_length: Positions of a slot: a prefix and the frames after it.
        pool: Of keys and values in pages, as a GPU has them; None: each slot has its own.
    """

    def __init__(
        self,
        model: Valle,
        prefixes: PrefixCache,
        *,
        slots: int,
        max_length: int,
        pool: PagePool | None = None,
        record: Record = as_it_is,
    ) -> None:
        config, device = model.config, model.separator.device
        table = SlotTable(
            slots,
            frames=max_length,
            prompt=config.max_prompt_frames,
            vocab_size=config.codes + 1,
            device=device,
            shared=pool is None,
        )
        self._prefixes = prefixes
        self._feed: Feed = (
            SlotFeed(model, slots, max_length)
            if pool is None
            else PagedFeed(model, pool, table, max_length, record)
        )
        self._batch = InputBatch(self._feed, ArSampler(table, stop_token=config.stop_token))
        self._running: list[HypothesisGroup] = []
        self._flying: deque[_Queued] = deque()

    @classmethod
    def alone(
        cls,
        model: Valle,
        prefixes: PrefixCache,
        inputs: UtteranceInput,
        pool: PagePool | None = None,
    ) -> Self:
        """Return a runner with just the slots that one utterance needs."""
        longest = max(map(len, inputs.ar_prefixes(model)))
        slots = rows_needed(inputs.params)
        return cls(model, prefixes, slots=slots, max_length=longest + inputs.max_frames, pool=pool)

    @property
    def free_rows(self) -> int:
        """How many slots are free; an utterance takes `rows_needed(params)`, in the end fewer."""
        return self._batch.free

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of all slots: in pages those in use, else all."""
        return self._feed.cache.bytes

    @property
    def running(self) -> Sequence[HypothesisGroup]:
        """The utterances that the next step draws for."""
        return tuple(self._running)

    @torch.inference_mode()
    def admit(self, inputs: UtteranceInput) -> HypothesisGroup:
        """Add an utterance and run its prefixes; steps then draw it.

        Raises:
            ValueError: Too few slots are free, or they are too short.
        """
        prefixes = inputs.ar_prefixes(self._feed.model)
        longest, count = max(map(len, prefixes)) + inputs.max_frames, rows_needed(inputs.params)
        max_length = self._feed.cache.max_length
        if count > self.free_rows or longest > max_length:
            raise ValueError(
                f"{count} slots of {longest} positions asked for, {self.free_rows} of {max_length} "
                "are free"
            )
        slots = self._batch.reserve(count)
        try:
            group = self._begin(inputs, prefixes, slots)
        except BaseException:
            self._batch.release(slots)
            raise
        self._running.append(group)
        return group

    def cancel(self, group: HypothesisGroup) -> None:
        """End an utterance, if it has not ended, and free its rows."""
        if group.finish_reason is None:
            group.finish_reason = "cancelled"
            self._free(group)

    def pause(self, group: HypothesisGroup) -> None:
        """Leave an utterance out of steps until it is resumed; it keeps its slots."""
        if group in self._running:
            self._running.remove(group)
            self._batch.pause(group.hypotheses)
            group.paused = True

    def resume(self, group: HypothesisGroup) -> None:
        """Draw a paused utterance again; its codes are as if it had not been paused."""
        if group.paused:
            self._running.append(group)
            self._batch.resume(group.hypotheses)
            group.paused = False

    def close(self) -> None:
        """Let go of what would hold memory in a circle; the runner is of no more use."""
        self._flying.clear()
        self._feed.close()

    @torch.inference_mode()
    def step(self) -> Sequence[HypothesisGroup]:
        """Queue the next code of every running utterance, and read what has been drawn.

        Returns the utterances that were running; those that ended have freed their rows.
        """
        groups = self.running
        for group in groups:
            self._make_room(group)
        lag = self._launch() if self._running else 0
        while len(self._flying) > lag:
            self._read(self._flying.popleft())
        return groups

    def _begin(
        self, inputs: UtteranceInput, prefixes: Sequence[Prefix], slots: Sequence[int]
    ) -> HypothesisGroup:
        """Run the prefixes once, copy them for further hypotheses, and add rows to the batch."""
        feed, params, stop_token = self._feed, inputs.params, self._feed.model.config.stop_token
        hypotheses: list[Hypothesis] = []
        for start in range(0, len(slots), len(prefixes)):
            backtracker = _backtracker(feed.model, inputs) if params.backtrack else None
            own = slots[start : start + len(prefixes)]
            conditions = [
                feed.copy(hypotheses[0].conditions[place], slot)
                if hypotheses
                else feed.prefill(self._prefixes, inputs, place, prefix, slot)
                for place, (prefix, slot) in enumerate(zip(prefixes, own, strict=True))
            ]
            hypotheses.append(Hypothesis(inputs, conditions, backtracker, stop_token=stop_token))
        if params.best_of > 1:
            for candidate, hypothesis in enumerate(hypotheses):
                self._batch.add([hypothesis], inputs, candidate)
            return BestOf(inputs, hypotheses)
        if params.beam_width:
            self._batch.add(hypotheses, inputs)
            return BeamSearch(inputs, hypotheses)
        self._batch.add(hypotheses[:1], inputs)
        return (Branching if is_on("branch", params) else HypothesisGroup)(inputs, hypotheses)

    def _make_room(self, group: HypothesisGroup) -> None:
        """Take the memory that an utterance needs next; it fails alone where there is none."""
        try:
            for hypothesis in group.hypotheses:
                if self._batch.has(hypothesis):
                    self._feed.make_room(hypothesis)
        except OutOfPages as error:
            group.fail(GenerationFailed(f"no memory for keys and values: {error}"))
            self._free(group)

    def _launch(self) -> int:
        """Queue a step of the running utterances; returns how many may be under way unread."""
        batch, groups = self._batch, self._running
        hypotheses = batch.drawing
        group_of = {one: group for group in groups for one in group.hypotheses}
        rows = [(one, group_of[one], batch.generation(one)) for one in hypotheses]
        traced = [group.inputs.top_logprobs for group in groups if group.inputs.trace]
        trace = Trace(top=max(traced)) if traced else None
        if trace is None and (arrived := self._feed.draw(hypotheses)) is not None:
            batch.sampler.note_drawn()
            self._flying.append(_Queued(rows, arrived))
            return self._feed.lag
        fed = self._feed(hypotheses)
        result = batch.sampler.advance(fed.own, trace, fed.null, fed.attention)
        logprobs = None
        if any(group.keeps_logprobs for group in groups):
            logprobs = log_prob_of(sanitise(fed.own), result.codes)
        arrived = self._feed.fetch(fed, result.codes, logprobs)
        record = trace.records[0] if trace else None
        if any(group.read_at_once for group in groups):
            self._flying.append(_Queued(rows, arrived, fed.own, result, record))
            return 0
        self._flying.append(_Queued(rows, arrived, record=record))
        return self._feed.lag

    def _read(self, step: _Queued) -> None:
        """Append what a step drew."""
        arrived, batch = step.arrived(), self._batch
        if step.result is not None:
            self._reorder_beams(step.rows, step.result)
        groups: dict[HypothesisGroup, None] = {}
        for place, (hypothesis, group, generation) in enumerate(step.rows):
            if batch.generation(hypothesis) != generation:
                continue
            groups[group] = None
            if place in arrived.invalid:
                group.fail(GenerationFailed("the model gave logits that are no numbers"))
            if hypothesis.idle or place in arrived.invalid:
                continue
            if step.record is not None and hypothesis.inputs.trace:
                hypothesis.records.append((step.record, place))
            if group.keeps_logprobs:
                hypothesis.logprobs.append(arrived.logprobs[place])
            kept = hypothesis.append(arrived.codes[place])
            if kept is not None and hypothesis.finish_reason is None:
                batch.rewind(hypothesis)
        if step.result is not None and step.own is not None:
            _set_alternatives([one for one, *_ in step.rows], step.result, step.own)
        for group in groups:
            if group.error is None:
                group.update(batch)
            if group.finish_reason is not None:
                self._free(group)

    def _reorder_beams(
        self, rows: Sequence[tuple[Hypothesis, HypothesisGroup, int]], result: StepResult
    ) -> None:
        """Copy beams that were continued into the rows that continue them, and set scores."""
        if result.scores is None:
            return
        for place, source in enumerate(result.sources):
            if place != source:
                self._batch.copy(rows[source][0], rows[place][0])
        scores = result.scores.tolist()
        for (hypothesis, *_), score in zip(rows, scores, strict=True):
            if hypothesis.inputs.params.beam_width:
                hypothesis.score = score

    def _free(self, group: HypothesisGroup) -> None:
        """Free the rows and slots of an utterance that has ended."""
        if group in self._running:
            self._running.remove(group)
        group.paused = False
        if group.finish_reason not in {"cancelled", "error"}:
            group.memory = self._memory(group)
        self._batch.release(group.slots)
        group.slots = []

    def _memory(self, group: HypothesisGroup) -> SamplerMemory | None:
        """Return what the sampler knew of an utterance, where that is more than its codes."""
        hypothesis = group.hypotheses[0]
        if not self._batch.has(hypothesis):
            return None
        memory = self._batch.sampler.memory(hypothesis.slots[0], len(hypothesis.codes))
        return None if memory is None else SamplerMemory(*(one.numpy() for one in memory))


def _set_alternatives(hypotheses: Sequence[Hypothesis], result: StepResult, own: Tensor) -> None:
    """Set the alternatives of every hypothesis that branches in this step, and clear the others."""
    for hypothesis in hypotheses:
        hypothesis.alternatives = ()
    if result.alternatives is None:
        return
    clean, alternatives = sanitise(own), result.alternatives[:, 1:].tolist()
    for row, (hypothesis, codes) in enumerate(zip(hypotheses, alternatives, strict=True)):
        codes = codes[: hypothesis.inputs.params.entropix_branch_rollouts - 1]
        if max(codes) < 0:
            continue
        others = torch.tensor(codes, device=own.device).clamp_(min=0)
        logprobs = log_prob_of(clean[row].expand(len(codes), -1), others).tolist()
        records = result.alternative_records if hypothesis.inputs.trace else [None] * len(codes)
        hypothesis.alternatives = [
            Alternative(code, logprob, None if record is None else (record, row))
            for code, logprob, record in zip(codes, logprobs, records, strict=False)
            if code >= 0
        ]


def _backtracker(model: Valle, inputs: UtteranceInput) -> Backtracker:
    silent = inputs.silent
    if silent is None:
        silent = torch.zeros(model.config.codes, dtype=torch.bool)
    backtracker = Backtracker(inputs.params, silent, first_block=model.config.block_frames)
    if inputs.kept is not None:
        backtracker.begin_after(len(inputs.kept.codes), inputs.kept.backtracks)
    return backtracker
