"""Autoregressive level 0 of many utterances: they join, draw a frame a step together, and leave.

Logits of the model go into the sampler, and the codes that it draws are fed back to the model.
An utterance has the same codes, bit for bit, whichever others are in the batch: its slots, its rows
of the sampler and its noise are its own, and the stack computes row by row.
"""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from app.engine.errors import GenerationFailed
from app.engine.job import SamplerMemory
from app.engine.level_0.admission import Runner
from app.engine.level_0.hypothesis import Alternative, Hypothesis
from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.level_0.input_batch import InputBatch
from app.engine.utterance import UtteranceInput
from models.prefix_cache import PrefixCache
from models.valle import Valle
from samplers.ar.state import SamplerState
from samplers.ar.step import StepResult
from samplers.ar.trace import Trace, log_prob_of
from samplers.knobs.features import rows_needed
from samplers.ops.filters import sanitise


class ArRunner(Runner):
    """Draws utterances with any knobs, row by row, launching every operator. One thread only."""

    def __init__(self, model: Valle, prefixes: PrefixCache, *, slots: int, max_length: int) -> None:
        """Begin without utterances.

        Args:
            model: On the device to use.
            prefixes: Keys and values of what prefixes have in common.
            slots: Of the cache: the most rows of a step.
            max_length: Positions of a slot: a prefix and the frames after it.
        """
        self._batch = InputBatch(model, slots, max_length)
        super().__init__(model, prefixes, self._batch)
        self._paused: dict[HypothesisGroup, tuple[list[Hypothesis], SamplerState]] = {}

    @classmethod
    def alone(cls, model: Valle, prefixes: PrefixCache, inputs: UtteranceInput) -> Self:
        """Return a runner with just the slots that one utterance needs."""
        longest = max(map(len, inputs.ar_prefixes(model)))
        slots = rows_needed(inputs.params)
        return cls(model, prefixes, slots=slots, max_length=longest + inputs.max_frames)

    def pause(self, group: HypothesisGroup) -> None:
        """Take the rows of an utterance out of the batch; see `Runner.pause`."""
        if group in self._running:
            hypotheses = [one for one in self._batch.hypotheses if one in group.hypotheses]
            if (state := self._batch.remove(hypotheses)) is not None:
                self._paused[group] = hypotheses, state
                group.paused = True
            self._running.remove(group)

    def resume(self, group: HypothesisGroup) -> None:
        """Put them back; see `Runner.resume`."""
        if (paused := self._paused.pop(group, None)) is not None:
            self._batch.restore(*paused)
            self._running.append(group)
            group.paused = False

    @torch.inference_mode()
    def step(self) -> Sequence[HypothesisGroup]:
        """Draw the next code of every running utterance; those that end free their rows.

        Returns:
            The utterances that were running.
        """
        groups = self.running
        if not groups:
            return groups
        batch, hypotheses = self._batch, tuple(self._batch.hypotheses)
        group_of = {one: group for group in groups for one in group.hypotheses}
        own, logits, attention, invalid = self._forward.logits(hypotheses)
        trace = Trace() if any(group.inputs.trace for group in groups) else None
        result = batch.sampler.advance(_penalised(hypotheses, logits), trace, own, attention)
        self._reorder_beams(hypotheses, result)
        logprobs = _logprobs(groups, own, result.codes)
        codes = result.codes.tolist()
        for row, (hypothesis, code) in enumerate(zip(hypotheses, codes, strict=True)):
            if hypothesis.idle or hypothesis in invalid:
                continue
            if trace is not None and hypothesis.inputs.trace:
                hypothesis.records.append((trace.records[0], row))
            if logprobs and group_of[hypothesis].keeps_logprobs:
                hypothesis.logprobs.append(logprobs[row])
            kept = hypothesis.append(code)
            if kept is not None and hypothesis.finish_reason is None:
                batch.rewind(row, kept)
        _set_alternatives(hypotheses, result, own)
        for hypothesis in invalid:
            group_of[hypothesis].fail(GenerationFailed("the model gave logits that are no numbers"))
        for group in groups:
            if group.error is None:
                group.update(batch)
            if group.finish_reason is not None:
                self._free(group)
        return groups

    def _reorder_beams(self, hypotheses: Sequence[Hypothesis], result: StepResult) -> None:
        """Copy beams that were continued into the rows that continue them, and set scores."""
        for row, source in enumerate(result.sources):
            if row != source:
                self._batch.copy(hypotheses[source], hypotheses[row])
        beams = [row for row, one in enumerate(hypotheses) if one.inputs.params.beam_width]
        scores = result.scores.tolist() if beams else []
        for row in beams:
            hypotheses[row].score = scores[row]

    def _free(self, group: HypothesisGroup) -> None:
        """Free the rows and slots of an utterance that has ended."""
        self.pause(group)
        if (paused := self._paused.pop(group, None)) is not None:
            group.memory = _memory(group, paused[1])
        self._batch.release(group.slots)
        group.slots = []


def _memory(group: HypothesisGroup, state: SamplerState) -> SamplerMemory | None:
    """Return what the sampler knew of an utterance, where that is more than its codes."""
    params, row = group.inputs.params, state.rows[0]
    if len(state.rows) > 1 or not (params.mirostat_mode or row.acts):
        return None
    columns = len(group) + 1
    mu, last_act = state.mu[0, :columns].cpu(), state.last_act[0, :columns].cpu()
    return SamplerMemory(mu.numpy(), last_act.numpy())


def _logprobs(groups: Sequence[HypothesisGroup], own: Tensor, codes: Tensor) -> list[float]:
    """Return the log-probability of every row's code, nats; empty if no group keeps them."""
    if not any(group.keeps_logprobs for group in groups):
        return []
    return log_prob_of(sanitise(own), codes).tolist()


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


def _penalised(hypotheses: Sequence[Hypothesis], logits: Tensor) -> Tensor:
    """Apply backtracking penalties to ``[B, V]`` logits: see `Backtracker.penalise`."""
    penalised: Tensor | None = None
    for row, hypothesis in enumerate(hypotheses):
        if hypothesis.backtracker is None:
            continue
        before = logits[row : row + 1]
        after = hypothesis.backtracker.penalise(before, len(hypothesis.codes))
        if after is not before:
            penalised = logits.clone() if penalised is None else penalised
            penalised[row] = after[0]
    return logits if penalised is None else penalised
