"""A step of the stack in shapes that never change, as a CUDA graph needs it.

The rows are the first slots of a cache, in their order, whether anything is to be added to them or
not, and all attend over the same number of columns, with what lies past a slot's length hidden.
Lengths and positions are read on the device. What the rows of idle slots compute is not looked at;
they write where their next row would go, so nothing that a slot holds is touched.

What lies past a length is read all the same, and hiding a NaN leaves a NaN. So nothing but numbers
is ever stored: see `storable`.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from models.stack.block import Block, RmsNorm
from models.stack.cache import KVCache


def storable(rows: Tensor) -> Tensor:
    """Return keys or values with 0 for what is no number, or no finite one.

    A row that has any is lost already: its own output has them too, by another way.
    """
    return rows.nan_to_num(0.0, 0.0, 0.0)


class FixedStep:
    """The step, and the tensors that it reads and writes.

    Attributes:
        inputs: ``[slots, D]``, what is added, by slot.
        positions: ``[slots]`` int64.
        numbers: ``[2, slots]`` int64, what the host tells: `lengths`, and `order`.
        lengths: ``[slots]`` int64, the first row of ``numbers``: how much each slot holds.
        order: ``[slots]`` int64, the second: which slot each row of a caller's batch is for.
        hidden: ``[slots, D]``, what comes out.
        queries: ``[slots, heads, head_dim]``, the last layer's.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        norm: RmsNorm,
        turns: Tensor,
        cache: KVCache,
        *,
        compiler: str | None = None,
    ) -> None:
        """Make the tensors; in inference mode, as all that follows.

        Args:
            blocks: The layers.
            norm: The last one.
            turns: ``[P, 1, head_dim / 2]`` complex, of each position.
            cache: Whose slots they step.
            compiler: Backend of `torch.compile` that fuses what stands around the attention; None
                runs it as it is.
        """
        self._blocks, self._norm, self._cache = blocks, norm, cache
        slots, kv_heads, room, head_dim = cache.keys[0].shape
        width, heads = len(norm.weight), blocks[0].attention.heads
        like = cache.keys[0]
        self.inputs = like.new_zeros(slots, width)
        self.hidden = like.new_zeros(slots, width)
        self.queries = like.new_zeros(slots, heads, head_dim)
        self.positions = like.new_zeros(slots, dtype=torch.int64)
        self.numbers = like.new_zeros(2, slots, dtype=torch.int64)
        self.lengths, self.order = self.numbers
        firsts = torch.arange(0, slots * kv_heads * room, room, device=like.device)
        self._firsts = firsts.view(slots, kv_heads)
        self._columns = torch.arange(room, device=like.device)
        self._seen, self._unseen = like.new_tensor(0.0), like.new_tensor(-torch.inf)
        self._enter: Callable[..., tuple[Tensor, Tensor, Tensor]] = _enter
        self._leave: Callable[..., Tensor] = _leave
        self._turns = turns
        if compiler is not None:
            fuse = partial(torch.compile, backend=compiler, fullgraph=True)
            self._enter, self._leave = fuse(_enter_paired), fuse(_leave)
            self._turns = torch.view_as_real(turns)

    def run(self, rows: int, reach: int) -> None:
        """Step some slots; fills the first rows of `hidden` and `queries`.

        Args:
            rows: How many of the first slots.
            reach: How many columns they attend over; more than the longest that counts holds.
        """
        cache, lengths = self._cache, self.lengths[:rows, None]
        places = (self._firsts[:rows] + lengths).flatten()
        seen = self._columns[:reach] <= lengths
        bias = torch.where(seen, self._seen, self._unseen)[:, None, None]
        turns = self._turns[self.positions[:rows]]
        x = queries = self.inputs[:rows]
        for number, block in enumerate(self._blocks):
            queries, keys, values = self._enter(block, x, turns)
            cache.put(number, places, keys, values)
            attended = block.attention.attend_together(
                queries,
                cache.keys[number][:rows, :, :reach],
                cache.values[number][:rows, :, :reach],
                bias,
            )
            x = self._leave(block, x, attended)
        self.hidden[:rows].copy_(self._norm(x))
        self.queries[:rows].copy_(queries)


def _enter(block: Block, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a layer's queries, keys and values of ``[B, D]``."""
    queries, keys, values = block.attention.project_turned(block.attention_norm(x), turns)
    return queries, storable(keys), storable(values)


def _enter_paired(block: Block, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As `_enter`, for a compiler."""
    queries, keys, values = block.attention.project_paired(block.attention_norm(x), turns)
    return queries, storable(keys), storable(values)


def _leave(block: Block, x: Tensor, attended: Tensor) -> Tensor:
    """Return ``[B, D]`` after a layer, given what its rows attended to."""
    x = x + block.attention.out(attended)
    return x + block.feed_forward(block.feed_forward_norm(x))
