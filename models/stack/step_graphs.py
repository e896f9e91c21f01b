"""The graphs of a step, one for each size that a batch may have, and which one serves.

Sizes are buckets: of rows, which are the first slots of the cache up to the highest in use, and of
columns, so that a short batch does not pay for the room of a long one. Slots should therefore be
taken from the lowest. A batch that no graph serves is told so, and steps as it would without.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from models.cuda.graphs import WARM_UPS, Play, Recorder
from models.cuda.transfers import upload
from models.stack.cache import KVCache
from models.stack.fixed_step import FixedStep

LEAST_REACH = 256


def buckets(least: int, most: int) -> Iterator[int]:
    """Yield the doubles of ``least`` that are below ``most``, then ``most``."""
    while least < most:
        yield least
        least *= 2
    yield most


class StepGraphs:
    """The recorded steps of one cache.

    Attributes:
        cache: Whose slots they step; no other may be stepped with them.
    """

    @torch.inference_mode()
    def __init__(self, step: FixedStep, cache: KVCache) -> None:
        """Record every size, so that no request waits for it.

        Args:
            step: Over the slots of the cache.
            cache: On the device to use; empty.

        Raises:
            ValueError: It is not empty: recording writes to the first row of every slot.
        """
        if any(cache.lengths):
            raise ValueError("a cache that holds something cannot be recorded")
        self.cache, self._step = cache, step
        self._rows = tuple(buckets(1, len(cache.lengths)))
        self._reaches = tuple(buckets(LEAST_REACH, cache.max_length))
        recorder = Recorder(cache.keys[0].device)
        self._graphs: dict[tuple[int, int], Play] = {}
        # The largest first: the others find all the memory that they need.
        for rows in reversed(self._rows):
            for reach in reversed(self._reaches):
                self._graphs[rows, reach] = self._record(recorder, rows, reach)

    @torch.inference_mode()
    def step(
        self, x: Tensor, positions: Tensor, slots: Sequence[int]
    ) -> tuple[Tensor, Tensor] | None:
        """Add one position to each of several slots; nothing here waits for the device.

        Args:
            x: ``[B, D]``.
            positions: ``[B]`` int64.
            slots: B different ones.

        Returns:
            ``[B, D]`` after the last norm, and the last layer's queries ``[B, heads, head_dim]``;
            None, and nothing is done, where no graph serves.
        """
        size = self.size(slots)
        if size is None:
            return None
        step, lengths = self._step, self.cache.lengths
        upload([lengths, [*slots, *[0] * (len(lengths) - len(slots))]], step.numbers)
        order = step.order[: len(slots)]
        step.inputs.index_copy_(0, order, x)
        step.positions.index_copy_(0, order, positions)
        self._graphs[size]()
        for slot in slots:
            self.cache.advance(slot, 1)
        return step.hidden.index_select(0, order), step.queries.index_select(0, order)

    def size(self, slots: Sequence[int]) -> tuple[int, int] | None:
        """Return rows and columns of the graph that serves a batch.

        None where a slot is full: one of the batch, which is for the caller to refuse, or an idle
        one below, which has no place where its row may write.
        """
        lengths = self.cache.lengths
        rows = next(rows for rows in self._rows if rows > max(slots))
        if max(lengths[:rows]) >= self.cache.max_length:
            return None
        longest = max(lengths[slot] for slot in slots) + 1
        return rows, next(reach for reach in self._reaches if reach >= longest)

    def _record(self, recorder: Recorder, rows: int, reach: int) -> Play:
        def run() -> None:
            self._step.run(rows, reach)

        return recorder.record(run, warm_ups=WARM_UPS)
