"""Level 0 of many utterances at once: they come, draw a frame a step together, and go.

One of the places where models meet samplers: logits go in, tokens come out, and the token is fed
back. What an utterance is given does not depend on who else is there, by a single bit: its slots,
its rows of the sampler and its noise are its own, and the stack computes row by row.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from app.engine.errors import GenerationFailed
from app.engine.level_0.beam_search import BeamSearch
from app.engine.level_0.best_of import BestOf
from app.engine.level_0.branching import Branching
from app.engine.level_0.forward import ForwardPass
from app.engine.level_0.hypothesis import Alternative, Condition, Hypothesis, StackRow
from app.engine.level_0.input_batch import InputBatch
from app.engine.level_0.utterance import ArUtterance
from app.engine.utterance import UtteranceInput
from models.prefix import Prefix
from models.prefix_cache import PrefixCache
from models.valle import Valle
from samplers.ar.state import SamplerState
from samplers.ar.step import StepResult
from samplers.ar.trace import Trace, log_prob_of
from samplers.knobs.features import is_on
from samplers.knobs.params import SamplingParams
from samplers.knobs.rows import rows_needed
from samplers.ops.entropix import AttentionStatistics
from samplers.ops.filters import sanitise
from samplers.ops.guidance import guide


def rows_of(inputs: UtteranceInput) -> int:
    """Return how many slots a piece takes."""
    return rows_needed(inputs.params)


class ArRunner:
    """Utterances that are drawn together, each in some slots of a cache. One thread only."""

    def __init__(
        self,
        model: Valle,
        prefixes: PrefixCache,
        *,
        slots: int,
        max_length: int,
        recorded: bool = False,
    ) -> None:
        """Begin with none.

        Args:
            model: On the device to use.
            prefixes: Where what prefixes share comes from.
            slots: How many rows a step may have.
            max_length: Positions a slot has room for: a prefix and the frames behind it.
            recorded: Whether steps are played as graphs, on a GPU; of one batch at a time.
        """
        self._model, self._device = model, model.separator.device
        self._rows = InputBatch(model, slots, max_length, recorded=recorded)
        self._reader = ForwardPass(model, prefixes, self._rows.cache)
        self._running: list[ArUtterance] = []
        self._paused: dict[ArUtterance, tuple[list[Hypothesis], SamplerState]] = {}

    @classmethod
    def alone(cls, model: Valle, prefixes: PrefixCache, inputs: UtteranceInput) -> Self:
        """Return one with just the room that one piece takes."""
        longest = max(map(len, inputs.ar_prefixes(model)))
        return cls(model, prefixes, slots=rows_of(inputs), max_length=longest + inputs.max_frames)

    @property
    def free_rows(self) -> int:
        """How many slots are free.

        A piece takes as many as `rows_of` says, as long as it lasts; one of several takes gives
        those of each back as soon as that has ended.
        """
        return self._rows.free

    @property
    def running(self) -> Sequence[ArUtterance]:
        """Those that the next step draws for."""
        return tuple(self._running)

    @torch.inference_mode()
    def admit(self, inputs: UtteranceInput) -> ArUtterance:
        """Read what comes before the first frame of a piece, which then runs.

        Args:
            inputs: What to speak.

        Raises:
            ValueError: There are not enough free rows, or a slot is too short for the piece.
        """
        prefixes = inputs.ar_prefixes(self._model)
        longest, count = max(map(len, prefixes)) + inputs.max_frames, rows_of(inputs)
        room = self._rows.cache.max_length
        if count > self.free_rows or longest > room:
            raise ValueError(
                f"{count} slots of {longest} positions asked for, {self.free_rows} of {room} are "
                "free"
            )
        slots = self._rows.reserve(count)
        try:
            utterance = self._begin(inputs, prefixes, slots)
        except BaseException:
            self._rows.release(slots)
            raise
        self._running.append(utterance)
        return utterance

    def pause(self, utterance: ArUtterance) -> None:
        """Draw no more for an utterance until it is resumed; it keeps its slots."""
        if utterance in self._running:
            takes = [take for take in self._rows.takes if take in utterance.takes]
            if (memory := self._rows.leave(takes)) is not None:
                self._paused[utterance] = takes, memory
            self._running.remove(utterance)

    def resume(self, utterance: ArUtterance) -> None:
        """Go on with an utterance that was paused, as if it had not been."""
        if (left := self._paused.pop(utterance, None)) is not None:
            self._rows.rejoin(*left)
            self._running.append(utterance)

    def drop(self, utterance: ArUtterance) -> None:
        """Stop an utterance, if it has not ended; its rows are free at once."""
        if utterance.finish_reason is None:
            utterance.finish_reason = "cancelled"
            self._let_go(utterance)

    @torch.inference_mode()
    def step(self) -> Sequence[ArUtterance]:
        """Draw the next token of every utterance that runs; those that end free their rows.

        Returns:
            The utterances that it drew for.
        """
        utterances = self.running
        if not utterances:
            return utterances
        takes = tuple(self._rows.takes)
        of = {take: utterance for utterance in utterances for take in utterance.takes}
        own, logits, attention, broken = self._look(takes)
        trace = Trace() if any(one.inputs.trace for one in utterances) else None
        sampler = self._rows.sampler
        stepped = sampler.advance(_discouraged(takes, logits), trace, own, attention)
        self._move(takes, stepped)
        logprobs = _logprobs(utterances, own, stepped.codes)
        for row, (take, code) in enumerate(zip(takes, stepped.codes.tolist(), strict=True)):
            if take.rests or take in broken:
                continue
            if trace is not None and of[take].inputs.trace:
                take.records.append((trace.records[0], row))
            if of[take].weighs_codes:
                take.logprobs.append(logprobs[row])
            kept = take.take(code, sampler.history, row)
            if kept is not None and take.finish_reason is None:
                self._rows.rewind(row, kept)
        _offer_ways(takes, stepped, own)
        for take in broken:
            of[take].fail(GenerationFailed("the model gave logits that are no numbers"))
        for utterance in utterances:
            if utterance.error is None:
                utterance.settle(self._rows)
            if utterance.finish_reason is not None:
                self._let_go(utterance)
        return utterances

    def _begin(
        self, inputs: UtteranceInput, prefixes: Sequence[Prefix], slots: Sequence[int]
    ) -> ArUtterance:
        """Read the prefixes into slots, and give the utterance its rows of the sampler."""
        model, params, cache = self._model, inputs.params, self._rows.cache
        stop_token, guided = model.config.stop_token, len(prefixes)
        takes: list[Hypothesis] = []
        for start in range(0, len(slots), guided):
            backtracker = inputs.backtracker(model) if params.backtrack else None
            own = slots[start : start + guided]
            conditions: list[Condition] = []
            for place, (prefix, slot) in enumerate(zip(prefixes, own, strict=True)):
                if not takes:
                    conditions.append(self._reader.begin(inputs, place, prefix, slot))
                    continue
                first = takes[0].conditions[place]
                cache.fork(first.slot, slot)
                conditions.append(replace(first, slot=slot))
            takes.append(Hypothesis(inputs, conditions, backtracker, stop_token=stop_token))
        if params.best_of > 1:
            for candidate, take in enumerate(takes):
                self._rows.begin([take], inputs, candidate)
            return BestOf(inputs, takes)
        if params.beam_width:
            self._rows.begin(takes, inputs)
            return BeamSearch(inputs, takes)
        self._rows.begin(takes[:1], inputs)
        return Branching(inputs, takes) if is_on("branch", params) else ArUtterance(inputs, takes)

    def _look(
        self, takes: Sequence[Hypothesis]
    ) -> tuple[Tensor, Tensor, AttentionStatistics, set[Hypothesis]]:
        """Ask the model what comes next in every row that draws.

        Returns:
            ``[B, V]`` with the words, the same guided, how the rows attended, and the takes whose
            logits are no numbers. Rows that rest have zeros.
        """
        drawing = [row for row, take in enumerate(takes) if not take.rests]
        lines = [StackRow(takes[row], takes[row].conditions[0]) for row in drawing]
        under_none = [place for place, line in enumerate(lines) if len(line.take.conditions) > 1]
        lines += [
            StackRow(lines[place].take, lines[place].take.conditions[1]) for place in under_none
        ]
        seen = self._reader.read(lines)
        logits = self._model.logits(seen.hidden, 0)
        told = zip(lines, logits.isnan().any(-1).tolist(), strict=True)
        broken = {line.take for line, broke in told if broke}
        own, null = logits.tensor_split([len(drawing)])
        params = [line.take.inputs.params for line in lines[: len(drawing)]]
        moved = _guided(params, under_none, own, null)
        attention = seen.attention[:, : len(drawing)]
        if len(drawing) < len(takes):
            index = torch.tensor(drawing, device=own.device)
            own, moved = (
                table.new_zeros(len(takes), table.shape[1]).index_copy_(0, index, table)
                for table in (own, moved)
            )
            attention = attention.new_zeros(len(attention), len(takes)).index_copy_(
                1, index, attention
            )
        return own, moved, AttentionStatistics(*attention.unbind()), broken

    def _move(self, takes: Sequence[Hypothesis], stepped: StepResult) -> None:
        """Let beams go on from where others were."""
        for row, source in enumerate(stepped.sources):
            if row != source:
                self._rows.copy(takes[source], takes[row])
        beams = [row for row, take in enumerate(takes) if take.inputs.params.beam_width]
        scores = stepped.scores.tolist() if beams else []
        for row in beams:
            takes[row].score = scores[row]

    def _let_go(self, utterance: ArUtterance) -> None:
        """Free the rows of an utterance that has ended."""
        self.pause(utterance)
        self._paused.pop(utterance, None)
        self._rows.release(utterance.slots)
        utterance.slots = []


def _logprobs(utterances: Sequence[ArUtterance], own: Tensor, codes: Tensor) -> list[float]:
    """Return the log-probability of every row's code where somebody asks for it, nats."""
    if not any(utterance.weighs_codes for utterance in utterances):
        return []
    return log_prob_of(sanitise(own), codes).tolist()


def _offer_ways(takes: Sequence[Hypothesis], stepped: StepResult, own: Tensor) -> None:
    """Tell every take how else it may go on, if it branches in this step."""
    for take in takes:
        take.ways = ()
    if stepped.alternatives is None:
        return
    clean = sanitise(own)
    for row, (take, codes) in enumerate(
        zip(takes, stepped.alternatives[:, 1:].tolist(), strict=True)
    ):
        codes = codes[: take.inputs.params.entropix_branch_rollouts - 1]
        if max(codes) < 0:
            continue
        others = torch.tensor(codes, device=own.device).clamp_(min=0)
        logprobs = log_prob_of(clean[row].expand(len(codes), -1), others).tolist()
        records = stepped.alternative_records if take.inputs.trace else [None] * len(codes)
        take.ways = [
            Alternative(code, logprob, None if record is None else (record, row))
            for code, logprob, record in zip(codes, logprobs, records, strict=False)
            if code >= 0
        ]


def _guided(
    params: Sequence[SamplingParams], under_none: Sequence[int], own: Tensor, null: Tensor
) -> Tensor:
    """Return ``[B, V]`` logits, guided in some rows by as many rows ``[G, V]`` without words."""
    if not under_none:
        return own
    knobs = [params[row] for row in under_none]
    strength = own.new_tensor([one.cfg_strength for one in knobs])
    rescale = own.new_tensor([one.cfg_rescale for one in knobs])
    index = torch.tensor(under_none, device=own.device)
    with_words = own.index_select(0, index)
    moved = guide(with_words[:, None], null[:, None], strength, rescale)[:, 0]
    return own.index_copy(0, index, moved)


def _discouraged(takes: Sequence[Hypothesis], logits: Tensor) -> Tensor:
    """Return ``[B, V]`` logits with less of what led astray at the next frame of each row."""
    rows = [logits[row : row + 1] for row in range(len(takes))]
    changed = [take.discourage(row) for take, row in zip(takes, rows, strict=True)]
    if all(new is old for new, old in zip(changed, rows, strict=True)):
        return logits
    return torch.cat(changed)
