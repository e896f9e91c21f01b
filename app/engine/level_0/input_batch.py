"""The rows of a batch: each hypothesis's slots of the KV cache, and its row of the sampler."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from app.engine.level_0.feed import Feed
from app.engine.level_0.hypothesis import Hypothesis
from app.engine.utterance import KeptFrames, UtteranceInput
from samplers.ar.sampler import ArSampler
from samplers.ar.state import DrawnCodes, RowInput


class InputBatch:
    """The hypotheses that have rows; keeps cache and sampler consistent with each other.

    A row is in the slot of the cache of its hypothesis's first condition. Whatever makes what was
    queued for it of no more use gives it another generation.
    """

    def __init__(self, feed: Feed, sampler: ArSampler) -> None:
        self.feed, self.sampler = feed, sampler
        self._cache = feed.cache
        self._rows: dict[int, Hypothesis] = {}
        slots = range(len(feed.cache.lengths))
        self._free, self._generations = list(slots), [0 for _ in slots]

    @property
    def free(self) -> int:
        """How many slots are free."""
        return len(self._free)

    @property
    def drawing(self) -> list[Hypothesis]:
        """The hypotheses that the next step draws for, in the order of their slots."""
        return [self._rows[slot] for slot in self.sampler.active]

    def has(self, hypothesis: Hypothesis) -> bool:
        """Return whether a hypothesis has a row."""
        return self._rows.get(hypothesis.slots[0]) is hypothesis

    def generation(self, hypothesis: Hypothesis) -> int:
        """Return a number that changes when what was queued for its row is of no more use."""
        return self._generations[hypothesis.slots[0]]

    def reserve(self, count: int) -> list[int]:
        """Reserve slots, the lowest; at least ``count`` must be free."""
        reserved, self._free = self._free[:count], self._free[count:]
        return reserved

    def release(self, slots: Sequence[int]) -> None:
        """Free slots, and remove the hypotheses that still use them."""
        self.remove([one for one in self._rows.values() if not {*slots}.isdisjoint(one.slots)])
        for slot in slots:
            self._cache.rewind(slot, 0)
        self._free = sorted([*self._free, *slots])

    def add(
        self, hypotheses: Sequence[Hypothesis], inputs: UtteranceInput, candidate: int = 0
    ) -> None:
        """Add a hypothesis, or all beams of a search; `best_of` numbers its candidates."""
        row = RowInput(
            inputs.params,
            inputs.seed,
            inputs.max_frames,
            inputs.utterance,
            candidate,
            None if inputs.prompt is None else inputs.prompt[:, 0],
            inputs.silent,
            _drawn(inputs.kept),
        )
        self.sampler.join([one.slots[0] for one in hypotheses], row)
        for one in hypotheses:
            self._begin(one)
            if (nats := self._avoided(one)) is not None:
                self.sampler.avoid(one.slots[0], len(one.codes), nats)

    def remove(self, hypotheses: Sequence[Hypothesis]) -> None:
        """Remove hypotheses; their slots stay reserved. Those that have no row are skipped."""
        for one in hypotheses:
            if self.has(one):
                del self._rows[one.slots[0]]
                self.sampler.leave(one.slots[0])
                self._generations[one.slots[0]] += 1
                self.feed.end(one)

    def pause(self, hypotheses: Sequence[Hypothesis]) -> None:
        """Leave rows out of steps; hypotheses that have none are skipped."""
        for one in filter(self.has, hypotheses):
            self.sampler.pause(one.slots[0])

    def resume(self, hypotheses: Sequence[Hypothesis]) -> None:
        """Draw paused rows again."""
        for one in filter(self.has, hypotheses):
            self.sampler.resume(one.slots[0])

    def rewind(self, hypothesis: Hypothesis) -> None:
        """Have a row go on behind the codes that its hypothesis has kept."""
        slot, kept = hypothesis.slots[0], len(hypothesis.codes)
        self.sampler.rewind(slot, kept, self._avoided(hypothesis))
        self._generations[slot] += 1
        for condition in hypothesis.conditions:
            # The last frame that is kept is fed once more.
            self._cache.rewind(condition.slot, condition.length + max(0, kept - 1))
            self.feed.moved(condition.slot)

    def copy(self, source: Hypothesis, target: Hypothesis) -> None:
        """Overwrite a hypothesis, though not its row, with another of the same utterance.

        Positions of the cache that both have in common are not copied.
        """
        common = _common_prefix(target.codes, source.codes)
        for condition, given in zip(target.conditions, source.conditions, strict=True):
            lengths = self._cache.lengths[condition.slot], self._cache.lengths[given.slot]
            shared = min(condition.length + common, *lengths)
            self._cache.fork(given.slot, condition.slot, shared=shared)
            self.feed.moved(condition.slot)
        target.copy_from(source)

    @torch.inference_mode()
    def fork(self, source: Hypothesis, target: Hypothesis, code: int, number: int) -> None:
        """Add a copy of a row, in slots of its own, that drew another code in the last step.

        Its noise depends on ``number``, counted from 1 among the copies of this row.
        """
        self.copy(source, target)
        target.codes[-1] = code
        length = len(target.codes)
        self.sampler.fork(source.slots[0], target.slots[0], length, code, number)
        self._begin(target)

    def _avoided(self, hypothesis: Hypothesis) -> Tensor | None:
        """Return what is added to the logits of a hypothesis's next frame, ``(V,)``."""
        if hypothesis.backtracker is None:
            return None
        return hypothesis.backtracker.avoided(len(hypothesis.codes), self.sampler.vocab_size)

    def _begin(self, hypothesis: Hypothesis) -> None:
        slot = hypothesis.slots[0]
        self._rows[slot] = hypothesis
        self._generations[slot] += 1
        self.feed.begin(hypothesis)


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
