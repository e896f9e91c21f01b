"""Utterances in the slots of one KV cache: how they begin and end, whatever draws them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import torch

from app.engine.level_0.backtracking import Backtracker
from app.engine.level_0.beam_search import BeamSearch
from app.engine.level_0.best_of import BestOf
from app.engine.level_0.branching import Branching
from app.engine.level_0.forward import ForwardPass
from app.engine.level_0.hypothesis import Condition, Hypothesis
from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.level_0.input_batch import Rows
from app.engine.utterance import UtteranceInput
from models.prefix import Prefix
from models.prefix_cache import PrefixCache
from models.valle import Valle
from samplers.knobs.features import is_on, rows_needed


class Runner(ABC):
    """Draws utterances together, a frame of each at a step. One thread only."""

    def __init__(self, model: Valle, prefixes: PrefixCache, rows: Rows) -> None:
        """Begin without utterances.

        Args:
            model: On the device to use.
            prefixes: Keys and values of what prefixes have in common.
            rows: Without hypotheses.
        """
        self._model, self._rows = model, rows
        self._forward = ForwardPass(model, prefixes, rows.cache)
        self._running: list[HypothesisGroup] = []

    @property
    def free_rows(self) -> int:
        """How many slots are free.

        An utterance takes `rows_needed(params)` until it ends; with `best_of`, each hypothesis
        gives its own back when it ends.
        """
        return self._rows.free

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of all slots: in pages those in use, else all."""
        return self._rows.cache.bytes

    @property
    def running(self) -> Sequence[HypothesisGroup]:
        """The utterances that the next step draws for."""
        return tuple(self._running)

    @torch.inference_mode()
    def admit(self, inputs: UtteranceInput) -> HypothesisGroup:
        """Add an utterance and run its prefixes; steps then draw it.

        Args:
            inputs: The utterance.

        Raises:
            ValueError: There are not enough free slots, or a slot is too short.
        """
        prefixes = inputs.ar_prefixes(self._model)
        longest, count = max(map(len, prefixes)) + inputs.max_frames, rows_needed(inputs.params)
        max_length = self._rows.cache.max_length
        if count > self.free_rows or longest > max_length:
            raise ValueError(
                f"{count} slots of {longest} positions asked for, {self.free_rows} of {max_length} "
                "are free"
            )
        slots = self._rows.reserve(count)
        try:
            group = self._prefill(inputs, prefixes, slots)
        except BaseException:
            self._rows.release(slots)
            raise
        self._running.append(group)
        return group

    def cancel(self, group: HypothesisGroup) -> None:
        """End an utterance, if it has not ended, and free its rows."""
        if group.finish_reason is None:
            group.finish_reason = "cancelled"
            self._free(group)

    def draws(self, inputs: UtteranceInput) -> bool:  # noqa: ARG002
        """Return whether an utterance with such knobs can be drawn here."""
        return True

    def close(self) -> None:  # noqa: B027  # most have nothing to do
        """Let go of what would hold memory in a circle; the runner is of no more use."""

    @abstractmethod
    def pause(self, group: HypothesisGroup) -> None:
        """Leave an utterance out of steps until it is resumed; it keeps its slots."""

    @abstractmethod
    def resume(self, group: HypothesisGroup) -> None:
        """Draw a paused utterance again; its codes are as if it had not been paused."""

    @abstractmethod
    def step(self) -> Sequence[HypothesisGroup]:
        """Draw the next code of every running utterance; those that end free their rows.

        Returns:
            The utterances that were running.
        """

    @abstractmethod
    def _free(self, group: HypothesisGroup) -> None:
        """Free the rows and slots of an utterance that has ended."""

    def _prefill(
        self, inputs: UtteranceInput, prefixes: Sequence[Prefix], slots: Sequence[int]
    ) -> HypothesisGroup:
        """Run the prefixes once, copy them for further hypotheses, and add rows to the batch."""
        model, params, cache = self._model, inputs.params, self._rows.cache
        stop_token, conditioned = model.config.stop_token, len(prefixes)
        hypotheses: list[Hypothesis] = []
        for start in range(0, len(slots), conditioned):
            backtracker = _backtracker(model, inputs) if params.backtrack else None
            own = slots[start : start + conditioned]
            conditions: list[Condition] = []
            for place, (prefix, slot) in enumerate(zip(prefixes, own, strict=True)):
                if not hypotheses:
                    conditions.append(self._forward.prefill(inputs, place, prefix, slot))
                    continue
                first = hypotheses[0].conditions[place]
                cache.fork(first.slot, slot)
                conditions.append(replace(first, slot=slot))
            hypotheses.append(Hypothesis(inputs, conditions, backtracker, stop_token=stop_token))
        if params.best_of > 1:
            for candidate, hypothesis in enumerate(hypotheses):
                self._rows.add([hypothesis], inputs, candidate)
            return BestOf(inputs, hypotheses)
        if params.beam_width:
            self._rows.add(hypotheses, inputs)
            return BeamSearch(inputs, hypotheses)
        self._rows.add(hypotheses[:1], inputs)
        return (Branching if is_on("branch", params) else HypothesisGroup)(inputs, hypotheses)


def _backtracker(model: Valle, inputs: UtteranceInput) -> Backtracker:
    silent = inputs.silent
    if silent is None:
        silent = torch.zeros(model.config.codes, dtype=torch.bool)
    backtracker = Backtracker(inputs.params, silent, first_block=model.config.block_frames)
    if inputs.kept is not None:
        backtracker.begin_after(len(inputs.kept.codes), inputs.kept.backtracks)
    return backtracker
