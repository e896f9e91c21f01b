"""CUDA graphs of a step, one for each batch size, and the choice among them.

Sizes are buckets of rows (the first slots of the cache up to the highest in use) and of columns
(positions attended to, so that a short batch does not pay for the capacity of the cache). Slots
should therefore be allocated from the lowest. A batch that fits no graph steps without one.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from models.cuda.graphs import WARM_UPS, Play, Recorder
from models.cuda.transfers import upload
from models.stack.cache import KVCache
from models.stack.fixed_step import FixedStep

MIN_COLUMNS = 256


def buckets(smallest: int, largest: int) -> Iterator[int]:
    """Yield ``smallest`` and its doubles while they are below ``largest``, then ``largest``."""
    size = smallest
    while size < largest:
        yield size
        size *= 2
    yield largest


class StepGraphs:
    """The captured steps of one cache.

    Attributes:
        cache: The cache that the graphs write to; they serve no other.
    """

    @torch.inference_mode()
    def __init__(self, step: FixedStep, cache: KVCache) -> None:
        """Capture every size now, so that no request waits for it.

        Args:
            step: The step over the slots of ``cache``.
            cache: Empty, on the device to use.

        Raises:
            ValueError: The cache is not empty: capturing writes to position 0 of every slot.
        """
        if any(cache.lengths):
            raise ValueError("a cache that holds something cannot be recorded")
        self.cache, self._step = cache, step
        self._rows = tuple(buckets(1, len(cache.lengths)))
        self._columns = tuple(buckets(MIN_COLUMNS, cache.max_length))
        recorder = Recorder(cache.keys[0].device)
        self._graphs: dict[tuple[int, int], Play] = {}
        # Largest first: the others then find all the memory that they need in the shared pool.
        for rows in reversed(self._rows):
            for columns in reversed(self._columns):
                self._graphs[rows, columns] = self._record(recorder, rows, columns)

    @torch.inference_mode()
    def step(
        self, x: Tensor, positions: Tensor, slots: Sequence[int]
    ) -> tuple[Tensor, Tensor] | None:
        """Append one position to each of several slots, without synchronising with the device.

        Args:
            x: ``[B, D]``.
            positions: ``[B]`` int64.
            slots: B distinct slots.

        Returns:
            ``[B, D]`` after the final norm and the last layer's queries ``[B, heads, head_dim]``;
            None, with nothing done, if no graph fits.
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
        """Return rows and columns of the graph for a batch, or None if a slot in it is full.

        That is a slot of the batch, which the caller refuses, or an idle one below the highest,
        which has no position left where its unused row may write.
        """
        lengths = self.cache.lengths
        rows = next(rows for rows in self._rows if rows > max(slots))
        if max(lengths[:rows]) >= self.cache.max_length:
            return None
        longest = max(lengths[slot] for slot in slots) + 1
        return rows, next(columns for columns in self._columns if columns >= longest)

    def _record(self, recorder: Recorder, rows: int, columns: int) -> Play:
        def run() -> None:
            self._step.run(rows, columns)

        return recorder.record(run, warm_ups=WARM_UPS)
