"""A step of the stack in fixed shapes, as a recording needs it.

The rows are the first slots of a cache in their order, whether or not a position is appended to
them, and all attend over the same number of columns, with positions past a slot's own masked. All
that differs from step to step is read on the device. The output of idle slots is ignored; they
write where their next position would go, so nothing that a slot holds is overwritten.

Positions past a length are read although masked, and a masked NaN is still a NaN. So only finite
keys and values are stored: see `replace_nonfinite`.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from models.stack.attention import masked_statistics
from models.stack.block import Block, RmsNorm
from models.stack.cache import KVCache
from samplers.ops.entropix import AttentionStatistics

MIN_COLUMNS = 256


def buckets(smallest: int, largest: int) -> Iterator[int]:
    """Yield ``smallest`` and its doubles while they are below ``largest``, then ``largest``."""
    size = smallest
    while size < largest:
        yield size
        size *= 2
    yield largest


def replace_nonfinite(x: Tensor) -> Tensor:
    """Return keys or values with NaN and infinities replaced by 0.

    A row that has any is lost already: its hidden state has them too, through the residual.
    """
    return x.nan_to_num(0.0, 0.0, 0.0)


class FixedStep:
    """The step over the first slots of one cache.

    Attributes:
        rows: The numbers of slots to choose from, ascending.
        columns: The numbers of positions to choose from, ascending.
    """

    def __init__(
        self, blocks: Sequence[Block], norm: RmsNorm, rotations: Tensor, cache: KVCache
    ) -> None:
        """Allocate what is constant; call in inference mode.

        Args:
            blocks: The layers.
            norm: The final norm.
            rotations: ``[P, 1, head_dim / 2]`` complex, of each position.
            cache: The cache that is stepped.
        """
        self._blocks, self._norm, self._rotations = blocks, norm, rotations
        self._cache = cache
        slots, kv_heads, max_length, _ = cache.keys[0].shape
        self.rows = tuple(buckets(1, slots))
        self.columns = tuple(buckets(MIN_COLUMNS, max_length))
        like = cache.keys[0]
        starts = torch.arange(0, 2 * slots * kv_heads * max_length, max_length, device=like.device)
        # Of keys, and of values behind all keys.
        self._starts = torch.cat([*starts.view(2, slots, kv_heads)], 1)
        self._columns = torch.arange(max_length, device=like.device)
        self._visible = torch.zeros((), dtype=like.dtype, device=like.device)
        self._masked = torch.full_like(self._visible, -torch.inf)

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
        cache, rows = self._cache, len(x)
        flat = (self._starts[:rows] + places[:, None]).flatten()
        visible = self._columns[:columns] <= places[:, None]
        bias = torch.where(visible, self._visible, self._masked)[:, None, None]
        rotations, queries = self._rotations[positions], x
        for number, block in enumerate(self._blocks):
            attention = block.attention
            queries, new = attention.project_joined(block.attention_norm(x), rotations)
            cache.put_joined(number, flat, replace_nonfinite(new).flatten(0, 1))
            attended = attention.attend_padded(
                queries,
                cache.keys[number][:rows, :, :columns],
                cache.values[number][:rows, :, :columns],
                bias,
            )
            x = attention.added_to(x, attended)
            x = block.feed_forward.added_to(x, block.feed_forward_norm(x))
        return self._norm(x), queries

    def attention(self, queries: Tensor, places: Tensor, columns: int) -> AttentionStatistics:
        """Return the attention statistics of each row in the last layer.

        Args:
            queries: ``[n, heads, head_dim]`` of `run`.
            places: As given to it.
            columns: As given to it.
        """
        keys = self._cache.keys[-1][: len(queries), :, :columns]
        return masked_statistics(queries, keys, places + 1)
