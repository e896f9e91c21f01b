"""The stack: pre-norm Llama blocks over vectors, with and without a cache.

RMSNorm, rotary positions, grouped KV heads, gated feed-forward (Touvron et al. 2023,
arXiv:2302.13971). One set of weights serves three passes: `forward` over whole sequences (training,
and the slow truth that the others are tested against), `extend` by many positions of one slot,
`step` by one position of many slots.

Who sees whom is data: every position has a *rank*, and sees the positions whose rank is not
greater than its own. Counting up is causal, one number a block is block-causal, all equal is full.

It is fed vectors and returns vectors; it knows nothing of phonemes, codes or heads.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from models.config import ModelConfig
from models.int8.stack import Int8Stack
from models.stack.attention import look
from models.stack.batching import AS_THEY_COME, Batching, Rows, measure
from models.stack.block import Block, RmsNorm
from models.stack.cache import KVCache
from models.stack.fixed_step import FixedStep, storable
from models.stack.slots import Slots
from models.stack.step_graphs import StepGraphs
from samplers.ops.entropix import AttentionStatistics

MAX_POSITIONS = 8192
PADDING_RANK = torch.iinfo(torch.int32).max


class Transformer(nn.Module):
    """The blocks and the last norm."""

    cos: Tensor
    sin: Tensor
    turns: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.blocks = cast("Sequence[Block]", blocks)
        self.norm = RmsNorm(config.width, config.norm_eps)
        self._graphs: StepGraphs | None = None
        self._integers: Int8Stack | None = None
        self._batching: Batching | None = None
        half = config.head_dim // 2
        frequencies = config.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(MAX_POSITIONS, dtype=torch.float64)[:, None] * frequencies
        cos, sin = angles.cos().float(), angles.sin().float()
        self.register_buffer("cos", torch.cat([cos, cos], 1), persistent=False)
        self.register_buffer("sin", torch.cat([-sin, sin], 1), persistent=False)
        self.register_buffer("turns", torch.complex(cos, sin)[:, None], persistent=False)

    def forward(self, x: Tensor, positions: Tensor, ranks: Tensor | None = None) -> Tensor:
        """Run whole sequences, with no cache.

        Args:
            x: ``[B, S, D]``, right-padded.
            positions: ``[B, S]`` int64, below `MAX_POSITIONS`.
            ranks: ``[B, S]`` int: i sees j where ``ranks[j] <= ranks[i]``. Padding has
                `PADDING_RANK`. None: causal, padding unseen because it comes last.

        Returns:
            ``[B, S, D]`` after the last norm.
        """
        if ranks is None:
            ranks = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
        hidden = (ranks[:, None] > ranks[:, :, None])[:, None]
        bias = torch.zeros(hidden.shape, device=x.device).masked_fill(hidden, -torch.inf)
        cos, sin = self.cos[positions], self.sin[positions]
        for block in self.blocks:
            x = block(x, cos, sin, bias)
        return self.norm(x)

    @torch.inference_mode()
    def record(self, cache: Slots, *, compiler: str | None = None) -> None:
        """Make steps of a cache's slots quick on a GPU, from now on: each becomes one graph.

        One cache at a time has this; recording another ends it. Works on a CPU too, where it serves
        tests: a graph is then the step in the graph's shapes, which costs more.

        Args:
            cache: On the device of the weights, of their dtype; empty.
            compiler: See `models.stack.fixed_step.FixedStep`.

        Raises:
            ValueError: The cache is not empty, or of integers.
        """
        cache = _of_floats(cache)
        step = FixedStep(self.blocks, self.norm, self.turns, cache, compiler=compiler)
        self._graphs = StepGraphs(step, cache)

    def use_integers(self) -> None:
        """Run all passes with a cache in integers, from now on; the layers are `Int8Linear`."""
        self._integers = Int8Stack(self.blocks, self.norm, self.turns)

    @property
    def in_integers(self) -> bool:
        """Whether `use_integers` was called."""
        return self._integers is not None

    @property
    def batching(self) -> Batching:
        """How few rows are computed, in floats on a CPU; measured when it is first needed.

        With as many threads as are set then: another number may round otherwise.
        """
        if self._batching is None:
            if self.in_integers or self.norm.weight.device.type != "cpu":
                self._batching = AS_THEY_COME  # integers are exact; a GPU promises no bits
            else:
                block = self.blocks[0]
                width = block.attention.heads * block.attention.head_dim
                layers: list[tuple[Rows, int]] = [
                    (lambda x: block.attention.qkv(block.attention_norm(x)), width),
                    (block.attention.out, width),
                    (lambda x: block.feed_forward(block.feed_forward_norm(x)), width),
                ]
                self._batching = measure(layers, self.norm.weight.dtype)
        return self._batching

    def extend(
        self, x: Tensor, positions: Tensor, cache: Slots, slot: int, ranks: Tensor | None = None
    ) -> Tensor:
        """Add positions to a slot; each sees all that the slot held before.

        Args:
            x: ``[S, D]``.
            positions: ``[S]`` int64.
            cache: Its slot grows by S.
            slot: Which one.
            ranks: ``[S]`` int among the new positions; None: they all see each other.

        Returns:
            ``[S, D]`` after the last norm.

        Raises:
            ValueError: The slot is full, or the cache is of other numbers than the stack.
        """
        return self._extend(x, positions, cache, slot, ranks)[0]

    def extend_looking(
        self, x: Tensor, positions: Tensor, cache: Slots, slot: int, ranks: Tensor | None = None
    ) -> tuple[Tensor, AttentionStatistics]:
        """As `extend`, with what the last layer's attention looks like from the last position.

        That position must see all others, as it does wherever its rank is the highest.

        Raises:
            ValueError: The slot is full, or the cache is of other numbers than the stack.
        """
        hidden, queries = self._extend(x, positions, cache, slot, ranks)
        return hidden, look([queries[-1]], [cache.keys_of(-1, slot)])

    def step(self, x: Tensor, positions: Tensor, cache: Slots, slots: Sequence[int]) -> Tensor:
        """Add one position to each of several slots of any lengths.

        Args:
            x: ``[B, D]``.
            positions: ``[B]`` int64.
            cache: Each slot grows by one.
            slots: B different ones.

        Returns:
            ``[B, D]`` after the last norm.

        Raises:
            ValueError: A slot is full, or the cache is of other numbers than the stack.
        """
        return self._step(x, positions, cache, slots)[0]

    def step_looking(
        self,
        x: Tensor,
        positions: Tensor,
        cache: Slots,
        slots: Sequence[int],
        looking: Sequence[int],
    ) -> tuple[Tensor, AttentionStatistics]:
        """As `step`, with what the last layer's attention looks like from some of the rows.

        Args:
            x: ``[B, D]``.
            positions: ``[B]`` int64.
            cache: Each slot grows by one.
            slots: B different ones.
            looking: Which of the B rows are asked; the others cost nothing.

        Returns:
            ``[B, D]`` after the last norm, and the statistics of the rows asked, in their order.

        Raises:
            ValueError: A slot is full, or the cache is of other numbers than the stack.
        """
        hidden, queries = self._step(x, positions, cache, slots)
        keys = [cache.keys_of(-1, slots[row]) for row in looking]
        return hidden, look([queries[row] for row in looking], keys)

    def _extend(
        self, x: Tensor, positions: Tensor, cache: Slots, slot: int, ranks: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return ``[S, D]`` and the last layer's queries ``[S, heads, head_dim]``."""
        mask = None
        if ranks is not None and len(x) > 1:
            seen = torch.ones(len(x), cache.lengths[slot], dtype=torch.bool, device=x.device)
            mask = torch.cat([seen, ranks[None] <= ranks[:, None]], 1)
        if self._integers is not None:
            return self._integers.extend(x, positions, cache, slot, mask)
        cache = _of_floats(cache)
        turns, queries = self.turns[positions], x
        recorded = self._graphs is not None and self._graphs.cache is cache
        for number, block in enumerate(self.blocks):
            attention = block.attention
            queries, keys, values = attention.project_turned(block.attention_norm(x), turns)
            if recorded:
                keys, values = storable(keys), storable(values)
            cached = cache.write(number, slot, keys.transpose(0, 1), values.transpose(0, 1))
            x = x + attention.out(attention.attend(queries, *cached, mask))
            x = x + block.feed_forward(block.feed_forward_norm(x))
        cache.advance(slot, len(x))
        return self.norm(x), queries

    def _step(
        self, x: Tensor, positions: Tensor, cache: Slots, slots: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Return ``[B, D]`` and the last layer's queries ``[B, heads, head_dim]``."""
        if self._integers is not None:
            return self._integers.step(x, positions, cache, slots)
        cache = _of_floats(cache)
        graphs = self._graphs
        if graphs is not None and graphs.cache is cache:
            stepped = graphs.step(x, positions, slots)
            if stepped is not None:
                return stepped
        parts = [
            self._step_together(x[part], positions[part], cache, slots[part])
            for part in self.batching.blocks(len(x))
        ]
        if len(parts) == 1:
            return parts[0]
        hidden, queries = zip(*parts, strict=True)
        return torch.cat(hidden), torch.cat(queries)

    def _step_together(
        self, x: Tensor, positions: Tensor, cache: KVCache, slots: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """As `_step`, for rows that are computed together."""
        count, batching = len(x), self.batching
        x = batching.pad(x)
        places, queries = cache.grow(slots), x
        turns = self.turns[positions]
        for number, block in enumerate(self.blocks):
            attention = block.attention
            queries, keys, values = attention.project_turned(block.attention_norm(x), turns)
            cache.put(number, places, keys, values)
            attended = attention.attend_alone(queries, [cache.rows(number, slot) for slot in slots])
            x = x + attention.out(batching.pad(attended))
            x = x + block.feed_forward(block.feed_forward_norm(x))
        return self.norm(x[:count]), queries[:count]


def _of_floats(cache: Slots) -> KVCache:
    if not isinstance(cache, KVCache):
        raise ValueError("a stack of floats needs a cache of floats: see Valle.new_cache")
    return cache
