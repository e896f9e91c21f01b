"""The rows of a batch: where each take has its keys and values, and its row of the sampler."""

from collections.abc import Sequence

import numpy as np
import torch

from app.engine.level_0.hypothesis import Hypothesis
from app.engine.utterance import UtteranceInput
from models.cuda.graphs import Recorder
from models.valle import Valle
from samplers.ar.graphs import GraphSampler
from samplers.ar.sampler import ArSampler
from samplers.ar.state import SamplerState


class InputBatch:
    """The cache and the sampler of a batch, kept in step with each other.

    Attributes:
        cache: With a slot for each condition of a take.
        sampler: With a row for each take.
        takes: In the order of the sampler's rows.
    """

    def __init__(
        self, model: Valle, slots: int, max_length: int, *, recorded: bool = False
    ) -> None:
        """Begin with none.

        Args:
            model: On the device to use.
            slots: Of the cache.
            max_length: Positions of a slot.
            recorded: Whether steps are played as graphs, on a GPU; of one batch at a time.
        """
        config, device = model.config, model.separator.device
        vocab_size = config.codes + 1
        self.cache = model.new_cache(slots, max_length)
        self.sampler: ArSampler
        if recorded and device.type == "cuda":
            model.transformer.record(self.cache)
            self.sampler = GraphSampler(
                Recorder(device).record,
                stop_token=config.stop_token,
                vocab_size=vocab_size,
                device=device,
            )
        else:
            self.sampler = ArSampler(
                stop_token=config.stop_token, vocab_size=vocab_size, device=device
            )
        self.takes: list[Hypothesis] = []
        self._free = list(range(slots))

    @property
    def free(self) -> int:
        """How many slots are free."""
        return len(self._free)

    def reserve(self, count: int) -> list[int]:
        """Take slots, of which there must be as many."""
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def release(self, slots: Sequence[int]) -> None:
        """Give slots back, and let the rows go of takes that still stand in them."""
        self.leave([take for take in self.takes if not {*slots}.isdisjoint(take.slots)])
        for slot in slots:
            self.cache.rewind(slot, 0)
        self._free = sorted([*self._free, *slots])

    def begin(
        self, takes: Sequence[Hypothesis], inputs: UtteranceInput, candidate: int = 0
    ) -> None:
        """Admit a take, or all beams of a search, before the first frame.

        Args:
            takes: One, or as many as the search is wide.
            inputs: What they say.
            candidate: Which of several takes with noise of their own it is.
        """
        self.sampler.join(
            inputs.params,
            inputs.seed,
            max_frames=inputs.max_frames,
            utterance=inputs.utterance,
            candidate=candidate,
            prompt=None if inputs.prompt is None else inputs.prompt[:, 0],
            silent=inputs.silent,
        )
        self.takes += takes

    def leave(self, takes: Sequence[Hypothesis]) -> SamplerState | None:
        """Let the rows of some takes go, and return what they remember; their slots stay."""
        rows = [row for row, take in enumerate(self.takes) if take in takes]
        if not rows:
            return None
        memory = self.sampler.leave(*rows)
        self.takes = [take for take in self.takes if take not in takes]
        return memory

    def rejoin(self, takes: Sequence[Hypothesis], memory: SamplerState) -> None:
        """Admit takes that left together, in the order that they had."""
        self.sampler.rejoin(memory)
        self.takes += takes

    def rewind(self, row: int, kept: int) -> None:
        """Take back all but the first frames of a row.

        Args:
            row: Which.
            kept: How many to keep.
        """
        self.sampler.rewind(row, kept)
        for condition in self.takes[row].conditions:
            # The last frame that is kept is fed once more.
            self.cache.rewind(condition.slot, condition.length + max(0, kept - 1))

    def copy(self, source: Hypothesis, take: Hypothesis) -> None:
        """Make a take what another of the same piece is; what they have read alike stays.

        Args:
            source: The other.
            take: Which is overwritten; its row of the sampler, if it has one, is not.
        """
        alike = _alike(take.codes, source.codes)
        for condition, given in zip(take.conditions, source.conditions, strict=True):
            read = self.cache.lengths[condition.slot], self.cache.lengths[given.slot]
            shared = min(condition.length + alike, *read)
            self.cache.fork(given.slot, condition.slot, shared=shared)
        take.become(source)

    @torch.inference_mode()
    def fork(self, row: int, take: Hypothesis, code: int, number: int) -> None:
        """Admit a take that is as another was, but drew another code in the last step.

        Args:
            row: That of the other.
            take: Which, in slots of its own.
            code: The code that it drew.
            number: Of the take among those that go on from there, from 1 on.
        """
        source = self.takes[row]
        self.copy(source, take)
        take.codes[-1] = code
        self.sampler.fork(row, len(take.codes), code, number)
        self.takes.append(take)


def _alike(codes: Sequence[int], others: Sequence[int]) -> int:
    """Return how many codes two sequences begin with in common."""
    length = min(len(codes), len(others))
    differs = np.not_equal(codes[:length], others[:length])
    return int(differs.argmax()) if differs.any() else length
