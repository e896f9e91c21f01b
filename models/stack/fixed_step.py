"""A step of the stack in fixed shapes, as a CUDA graph needs it.

The rows are the first slots of a cache in their order, whether or not a position is appended to
them, and all attend over the same number of columns, with positions past a slot's length masked.
Lengths and positions are read on the device. The output of idle slots is ignored; they write where
their next position would go, so nothing that a slot holds is overwritten.

Positions past a length are read although masked, and a masked NaN is still a NaN. So only finite
keys and values are stored: see `replace_nonfinite`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.stack.block import Block, RmsNorm
from models.stack.cache import KVCache


def replace_nonfinite(x: Tensor) -> Tensor:
    """Return keys or values with NaN and infinities replaced by 0.

    A row that has any is lost already: its hidden state has them too, through the residual.
    """
    return x.nan_to_num(0.0, 0.0, 0.0)


class FixedStep:
    """The step, with the tensors that it reads and writes.

    Attributes:
        inputs: ``[slots, D]``, the vectors to append, by slot.
        positions: ``[slots]`` int64, their positions.
        numbers: ``[2, slots]`` int64, uploaded by the host: ``lengths`` and ``order``.
        lengths: ``[slots]`` int64, the first row of ``numbers``: the length of each slot.
        order: ``[slots]`` int64, the second row: the slot of each row of the caller's batch.
        hidden: ``[slots, D]``, output after the final norm.
        queries: ``[slots, heads, head_dim]``, output: the last layer's queries.
    """

    def __init__(
        self, blocks: Sequence[Block], norm: RmsNorm, rotations: Tensor, cache: KVCache
    ) -> None:
        """Allocate the tensors; call in inference mode.

        Args:
            blocks: The layers.
            norm: The final norm.
            rotations: ``[P, 1, head_dim / 2]`` complex, of each position.
            cache: The cache that is stepped.
        """
        self._blocks, self._norm, self._rotations = blocks, norm, rotations
        self._cache = cache
        slots, kv_heads, max_length, head_dim = cache.keys[0].shape
        width, heads = len(norm.weight), blocks[0].attention.heads
        like = cache.keys[0]
        self.inputs = like.new_zeros(slots, width)
        self.hidden = like.new_zeros(slots, width)
        self.queries = like.new_zeros(slots, heads, head_dim)
        self.positions = like.new_zeros(slots, dtype=torch.int64)
        self.numbers = like.new_zeros(2, slots, dtype=torch.int64)
        self.lengths, self.order = self.numbers
        starts = torch.arange(0, slots * kv_heads * max_length, max_length, device=like.device)
        self._starts = starts.view(slots, kv_heads)
        self._columns = torch.arange(max_length, device=like.device)
        self._visible, self._masked = like.new_tensor(0.0), like.new_tensor(-torch.inf)

    def run(self, rows: int, columns: int) -> None:
        """Step some slots; writes the first rows of ``hidden`` and ``queries``.

        Args:
            rows: Number of slots, counted from the first.
            columns: Number of positions attended over; more than the longest stepped slot holds.
        """
        cache, lengths = self._cache, self.lengths[:rows, None]
        places = (self._starts[:rows] + lengths).flatten()
        visible = self._columns[:columns] <= lengths
        bias = torch.where(visible, self._visible, self._masked)[:, None, None]
        rotations = self._rotations[self.positions[:rows]]
        x = queries = self.inputs[:rows]
        for number, block in enumerate(self._blocks):
            attention = block.attention
            queries, keys, values = attention.project_complex(block.attention_norm(x), rotations)
            cache.put(number, places, replace_nonfinite(keys), replace_nonfinite(values))
            attended = attention.attend_padded(
                queries,
                cache.keys[number][:rows, :, :columns],
                cache.values[number][:rows, :, :columns],
                bias,
            )
            x = x + attention.out(attended)
            x = x + block.feed_forward(block.feed_forward_norm(x))
        self.hidden[:rows].copy_(self._norm(x))
        self.queries[:rows].copy_(queries)
