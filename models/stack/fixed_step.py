"""A step of the stack in fixed shapes, as a recording needs it.

The rows are the first slots of a cache in their order, whether or not a position is appended to
them. All that differs from step to step is read on the device. The output of idle slots is ignored;
they write where their next position would go, so nothing that a slot holds is overwritten.

Where attention is of torch's operators, all rows attend over the same number of columns, and
positions past a length are read although masked: a masked NaN is still a NaN. So only finite keys
and values are stored: see `models.cuda.kernels.reference.replace_nonfinite`.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from models.cuda.kernels.choice import Kernels
from models.cuda.kernels.reference import bias_of
from models.stack.attention import masked_statistics
from models.stack.block import Block, RmsNorm
from models.stack.cache import KVCache
from models.stack.fixed_layers import FixedLayers, Placed
from samplers.ops.entropix import AttentionStatistics

MIN_COLUMNS = 256


def buckets(smallest: int, largest: int) -> Iterator[int]:
    """Yield ``smallest`` and its doubles while they are below ``largest``, then ``largest``."""
    size = smallest
    while size < largest:
        yield size
        size *= 2
    yield largest


class FixedStep:
    """The step over the first slots of one cache.

    Attributes:
        rows: The numbers of slots to choose from, ascending.
        columns: The numbers of positions to choose from, ascending.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        norm: RmsNorm,
        rotations: Tensor,
        cache: KVCache,
        kernels: Kernels,
    ) -> None:
        """Allocate what is constant; call in inference mode.

        Args:
            blocks: The layers.
            norm: The final norm.
            rotations: ``[P, 1, head_dim / 2]`` complex, of each position.
            cache: The cache that is stepped.
            kernels: Which kernels are fused.
        """
        self._layers = FixedLayers(blocks, norm, kernels)
        self._rotations, self._cache = rotations, cache
        slots, kv_heads, max_length, _ = cache.keys[0].shape
        self.rows = tuple(buckets(1, slots))
        self.columns = tuple(buckets(MIN_COLUMNS, max_length))
        device = cache.keys[0].device
        starts = torch.arange(0, 2 * slots * kv_heads * max_length, max_length, device=device)
        # Of keys, and of values behind all keys.
        self._starts = torch.cat([*starts.view(2, slots, kv_heads)], 1)

    def size(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the least of `rows` and `columns` that hold so many."""
        return (
            next(size for size in self.rows if size >= rows),
            next(size for size in self.columns if size >= columns),
        )

    def run(
        self, x: Tensor, positions: Tensor, places: Tensor, columns: int
    ) -> tuple[Tensor, Tensor]:
        """Write one position to each of the first slots.

        Args:
            x: ``[n, D]``, of the first n slots.
            positions: ``[n]`` int64, position ids.
            places: ``[n]`` int64, where each is written: it attends to all up to there.
            columns: Number of positions attended over; more than the greatest place that matters.

        Returns:
            ``[n, D]`` after the final norm, and the last layer's queries ``[n, heads, head_dim]``.
        """
        cache, layers, rows = self._cache, self._layers, len(x)
        seen = places[:, None] + 1
        flat = bias = None
        if not layers.kernels.stores:
            flat = (self._starts[:rows] + places[:, None]).flatten()
        if not layers.kernels.attends:
            bias = bias_of(seen, columns, x.dtype).expand(-1, -1, layers.group, -1)
        placed = Placed(self._rotations[positions], places, seen, None, columns, flat, bias)
        return layers.run(x, cache.stored(rows), placed)

    def attention(self, queries: Tensor, places: Tensor, columns: int) -> AttentionStatistics:
        """Return the attention statistics of each row in the last layer.

        Args:
            queries: ``[n, heads, head_dim]`` of `run`.
            places: As given to it.
            columns: As given to it.
        """
        keys = self._cache.keys[-1][: len(queries), :, :columns]
        return masked_statistics(queries, keys, places + 1)
