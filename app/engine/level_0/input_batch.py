"""The rows of a batch: each hypothesis's slots of the KV cache, and its row of the sampler."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from app.engine.level_0.hypothesis import Hypothesis
from app.engine.utterance import KeptFrames, UtteranceInput
from models.stack.slot_cache import SlotCache
from models.valle import Valle
from samplers.ar.sampler import ArSampler
from samplers.ar.state import DrawnCodes, SamplerState


class Rows(ABC):
    """The slots of a KV cache, and the hypotheses that are drawn in them.

    Attributes:
        cache: With a slot for each condition of a hypothesis.
        hypotheses: Those that have rows.
    """

    def __init__(self, cache: SlotCache) -> None:
        """Begin without rows."""
        self.cache = cache
        self.hypotheses: list[Hypothesis] = []
        self._free = list(range(len(cache.lengths)))

    @property
    def free(self) -> int:
        """How many slots are free."""
        return len(self._free)

    def reserve(self, count: int) -> list[int]:
        """Reserve slots, the lowest; at least ``count`` must be free."""
        reserved, self._free = self._free[:count], self._free[count:]
        return reserved

    def release(self, slots: Sequence[int]) -> None:
        """Free slots, and remove the hypotheses that still use them."""
        self.remove([one for one in self.hypotheses if not {*slots}.isdisjoint(one.slots)])
        for slot in slots:
            self.cache.rewind(slot, 0)
        self._free = sorted([*self._free, *slots])

    @abstractmethod
    def add(
        self, hypotheses: Sequence[Hypothesis], inputs: UtteranceInput, candidate: int = 0
    ) -> None:
        """Add a hypothesis, or all beams of a search, before the first frame.

        Args:
            hypotheses: One, or as many as the search has beams.
            inputs: The utterance.
            candidate: Number of the hypothesis in `best_of`; its noise depends on it.
        """

    @abstractmethod
    def remove(self, hypotheses: Sequence[Hypothesis]) -> object:
        """Remove hypotheses; their slots stay reserved. Those that have no row are skipped."""


class InputBatch(Rows):
    """The KV cache and the sampler of a batch, kept consistent with each other.

    Attributes:
        sampler: With a row for each hypothesis, in the order of `hypotheses`.
    """

    def __init__(self, model: Valle, slots: int, max_length: int) -> None:
        """Begin without rows.

        Args:
            model: On the device to use.
            slots: Of the cache.
            max_length: Positions of a slot.
        """
        super().__init__(model.new_cache(slots, max_length))
        config, device = model.config, model.separator.device
        self.sampler = ArSampler(
            stop_token=config.stop_token, vocab_size=config.codes + 1, device=device
        )

    def add(
        self, hypotheses: Sequence[Hypothesis], inputs: UtteranceInput, candidate: int = 0
    ) -> None:
        """Add a hypothesis, or all beams of a search; see `Rows.add`."""
        self.sampler.join(
            inputs.params,
            inputs.seed,
            max_frames=inputs.max_frames,
            utterance=inputs.utterance,
            candidate=candidate,
            prompt=None if inputs.prompt is None else inputs.prompt[:, 0],
            silent=inputs.silent,
            drawn=_drawn(inputs.kept),
        )
        self.hypotheses += hypotheses

    def remove(self, hypotheses: Sequence[Hypothesis]) -> SamplerState | None:
        """Remove rows of the sampler; slots stay reserved.

        Args:
            hypotheses: Which; those that have no row are skipped.

        Returns:
            The sampler's state of the rows, for `restore`; None if there was no row.
        """
        rows = [row for row, one in enumerate(self.hypotheses) if one in hypotheses]
        if not rows:
            return None
        state = self.sampler.leave(*rows)
        self.hypotheses = [one for one in self.hypotheses if one not in hypotheses]
        return state

    def restore(self, hypotheses: Sequence[Hypothesis], state: SamplerState) -> None:
        """Add rows that were removed together.

        Args:
            hypotheses: In the order that their rows had.
            state: From `remove`.
        """
        self.sampler.rejoin(state)
        self.hypotheses += hypotheses

    def rewind(self, row: int, kept: int) -> None:
        """Rewind a row, in the sampler and in the cache.

        Args:
            row: Of the sampler.
            kept: How many of its first frames to keep.
        """
        self.sampler.rewind(row, kept)
        for condition in self.hypotheses[row].conditions:
            # The last frame that is kept is fed once more.
            self.cache.rewind(condition.slot, condition.length + max(0, kept - 1))

    def copy(self, source: Hypothesis, target: Hypothesis) -> None:
        """Overwrite a hypothesis with another of the same utterance.

        Positions of the cache that both have in common are not copied.

        Args:
            source: Is copied.
            target: Is overwritten; its row of the sampler, if it has one, is not.
        """
        common = _common_prefix(target.codes, source.codes)
        for condition, given in zip(target.conditions, source.conditions, strict=True):
            lengths = self.cache.lengths[condition.slot], self.cache.lengths[given.slot]
            shared = min(condition.length + common, *lengths)
            self.cache.fork(given.slot, condition.slot, shared=shared)
        target.copy_from(source)

    @torch.inference_mode()
    def fork(self, row: int, target: Hypothesis, code: int, number: int) -> None:
        """Add a copy of a row that drew another code in the last step.

        Args:
            row: Of the sampler; is copied.
            target: The copy, in slots of its own.
            code: Replaces the last code.
            number: Of the copy among those of this row, from 1 on; its noise depends on it.
        """
        self.copy(self.hypotheses[row], target)
        target.codes[-1] = code
        self.sampler.fork(row, len(target.codes), code, number)
        self.hypotheses.append(target)


def _drawn(kept: KeptFrames | None) -> DrawnCodes | None:
    """Return what the sampler is to know of the frames that an earlier take has drawn."""
    if kept is None:
        return None
    codes, memory = kept.codes[:, 0], kept.memory
    return DrawnCodes(
        codes,
        attempts=len(kept.backtracks),
        mu=None if memory is None else float(memory.mu[len(codes)]),
        last_act=None if memory is None else int(memory.last_act[len(codes)]),
    )


def _common_prefix(codes: Sequence[int], others: Sequence[int]) -> int:
    """Return the length of the common prefix of two sequences of codes."""
    length = min(len(codes), len(others))
    differs = np.not_equal(codes[:length], others[:length])
    return int(differs.argmax()) if differs.any() else length
