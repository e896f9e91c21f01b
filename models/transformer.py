"""The stack: pre-norm Llama blocks over vectors, with and without a cache.

RMSNorm, rotary positions, grouped KV heads, gated feed-forward (Touvron et al. 2023,
arXiv:2302.13971). One set of weights serves three passes: `forward` over whole sequences (training,
and the slow truth that the others are tested against), `extend` by many positions of one slot,
`step` by one position of many slots.

Who sees whom is data: every position has a *rank*, and sees the positions whose rank is not
greater than its own. Counting up is causal, one number a block is block-causal, all equal is full.

It is fed vectors and returns vectors; it knows nothing of phonemes, codes or heads.
"""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.attention import look
from models.cache import KVCache
from models.config import ModelConfig
from models.padding import pad_rows
from samplers.entropix import AttentionStatistics

MAX_POSITIONS = 8192
PADDING_RANK = torch.iinfo(torch.int32).max


class Attention(nn.Module):
    """Grouped-query attention with rotary positions; one matrix for queries, keys and values."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.head_dim = config.head_dim
        self.qkv = nn.Linear(
            config.width, (config.heads + 2 * config.kv_heads) * config.head_dim, bias=False
        )
        self.out = nn.Linear(config.width, config.width, bias=False)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rotated queries and keys, and values, ``[..., heads, head_dim]`` each.

        Args:
            x: ``[..., D]``.
            cos: ``[..., head_dim]`` of each position.
            sin: ``[..., head_dim]``, its first half negated.
        """
        qkv = self.qkv(x).unflatten(-1, (-1, self.head_dim))
        rotated, values = qkv.split([self.heads + self.kv_heads, self.kv_heads], -2)
        # rotate half: (a, b) -> (a cos - b sin, b cos + a sin)
        swapped = rotated.roll(self.head_dim // 2, -1)
        rotated = rotated * cos.unsqueeze(-2) + swapped * sin.unsqueeze(-2)
        queries, keys = rotated.split([self.heads, self.kv_heads], -2)
        return queries, keys, values

    def project_turned(self, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `project`, by one complex product, which leaves (a, b) of each rotation side by side.

        So do queries and keys alike: their products are those of `project`.

        Args:
            x: ``[>= S, D]`` float32 or float64; rows past S are padding and fall away.
            turns: ``[S, 1, head_dim / 2]`` complex, of each position.
        """
        qkv = self.qkv(x)[: len(turns)].view(len(turns), -1, self.head_dim)
        rotated, values = qkv.split([self.heads + self.kv_heads, self.kv_heads], 1)
        turned = torch.complex(*rotated.chunk(2, -1)).mul_(turns)
        pairs = torch.view_as_real(turned).flatten(2)
        queries, keys = torch.split(pairs, [self.heads, self.kv_heads], 1)
        return queries, keys, values

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor) -> Tensor:
        """Attend within ``[B, S, D]``; ``bias`` ``[B, 1, S, S]`` is 0 where visible, else -inf.

        Written out: on a CPU the products and softmax in bfloat16 train twice as fast as the fused
        kernel with a mask, and the other passes have something independent to be equal to.
        """
        queries, keys, values = (t.transpose(1, 2) for t in self.project(x, cos, sin))
        group = self.heads // self.kv_heads
        keys, values = (t.repeat_interleave(group, 1) for t in (keys, values))
        scores = (queries * self.head_dim**-0.5) @ keys.transpose(-1, -2)
        y = (scores + bias.to(scores.dtype)).softmax(-1) @ values
        return self.out(y.transpose(1, 2).flatten(2))

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attend from new rows to a slot's rows.

        The query heads that share a KV head are laid along the query axis: no key is repeated.

        Args:
            queries: ``[S, heads, head_dim]``.
            keys: ``[kv_heads, T, head_dim]``.
            values: ``[kv_heads, T, head_dim]``.
            mask: ``[S, T]`` bool, or None where all is visible.

        Returns:
            ``[S, D]``.
        """
        count, group = queries.shape[0], self.heads // self.kv_heads
        folded = queries.view(count, self.kv_heads, group, self.head_dim)
        folded = folded.permute(1, 2, 0, 3).reshape(1, self.kv_heads, -1, self.head_dim)
        if mask is not None:
            mask = mask.repeat(group, 1)
        y = F.scaled_dot_product_attention(folded, keys[None], values[None], attn_mask=mask)
        y = y.view(self.kv_heads, group, count, self.head_dim).permute(2, 0, 1, 3)
        return y.reshape(count, -1)

    def attend_alone(self, queries: Tensor, cached: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Attend from one new row of each of several slots to all that its slot holds.

        Row by row over the valid length only: a neighbour then cannot change a row's bits.

        Args:
            queries: ``[B, heads, head_dim]``.
            cached: Keys and values ``[1, kv_heads, T, head_dim]`` of each row; T may differ.

        Returns:
            ``[B, D]``.
        """
        folded = queries.view(len(cached), 1, self.kv_heads, -1, self.head_dim)
        attended = [
            F.scaled_dot_product_attention(row, keys, values)
            for row, (keys, values) in zip(folded.unbind(), cached, strict=True)
        ]
        return torch.cat(attended).flatten(1)


class FeedForward(nn.Module):
    """``down(act(gate x) * up x)``; one matrix for gate and up."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.width, 2 * config.ffn, bias=False)
        self.down = nn.Linear(config.ffn, config.width, bias=False)
        activation = {"gelu": F.gelu, "silu": F.silu}[config.activation]
        self.activation = cast("Callable[[Tensor], Tensor]", activation)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., D]`` to the same shape."""
        gate, up = self.gate_up(x).chunk(2, -1)
        # Where all is contiguous, as a lone row is, torch takes another kernel for GELU, with other
        # bits, which takes thrice as long for few rows.
        lone = gate.is_contiguous()
        activated = self.activation(gate.expand(2, *gate.shape) if lone else gate)
        return self.down((activated[0] if lone else activated) * up)


class RmsNorm(nn.RMSNorm):
    """torch's, in half the time for few rows where no gradient is wanted."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps=eps)
        # Plain attributes: of a norm of some calls, looking up a buffer is a part.
        self.least, self.root = torch.tensor((width * eps) ** 0.5), torch.tensor(width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., D]`` to the same shape."""
        if torch.is_grad_enabled() or x.dtype != torch.float32:
            return super().forward(x)
        # sqrt(mean(x^2) + eps) is hypot(|x|, sqrt(D eps)) / sqrt(D)
        lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x * (self.root / lengths.hypot_(self.least))).mul_(self.weight)


class Block(nn.Module):
    """Attention and feed-forward, each behind a norm and added to its input."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = RmsNorm(config.width, config.norm_eps)
        self.attention = Attention(config)
        self.feed_forward_norm = RmsNorm(config.width, config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor) -> Tensor:
        """Map ``[B, S, D]`` to the same shape."""
        x = x + self.attention(self.attention_norm(x), cos, sin, bias)
        return x + self.feed_forward(self.feed_forward_norm(x))


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

    def extend(
        self, x: Tensor, positions: Tensor, cache: KVCache, slot: int, ranks: Tensor | None = None
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
            ValueError: The slot is full.
        """
        return self._extend(x, positions, cache, slot, ranks)[0]

    def extend_looking(
        self, x: Tensor, positions: Tensor, cache: KVCache, slot: int, ranks: Tensor | None = None
    ) -> tuple[Tensor, AttentionStatistics]:
        """As `extend`, with what the last layer's attention looks like from the last position.

        That position must see all others, as it does wherever its rank is the highest.

        Raises:
            ValueError: The slot is full.
        """
        hidden, queries = self._extend(x, positions, cache, slot, ranks)
        return hidden, look([queries[-1]], [cache.rows(-1, slot)[0][0]])

    def step(self, x: Tensor, positions: Tensor, cache: KVCache, slots: Sequence[int]) -> Tensor:
        """Add one position to each of several slots of any lengths.

        Args:
            x: ``[B, D]``.
            positions: ``[B]`` int64.
            cache: Each slot grows by one.
            slots: B different ones.

        Returns:
            ``[B, D]`` after the last norm.

        Raises:
            ValueError: A slot is full.
        """
        return self._step(x, positions, cache, slots)[0]

    def step_looking(
        self,
        x: Tensor,
        positions: Tensor,
        cache: KVCache,
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
            ValueError: A slot is full.
        """
        hidden, queries = self._step(x, positions, cache, slots)
        keys = [cache.rows(-1, slots[row])[0][0] for row in looking]
        return hidden, look([queries[row] for row in looking], keys)

    def _extend(
        self, x: Tensor, positions: Tensor, cache: KVCache, slot: int, ranks: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return ``[S, D]`` and the last layer's queries ``[S, heads, head_dim]``."""
        mask = None
        if ranks is not None and len(x) > 1:
            seen = torch.ones(len(x), cache.lengths[slot], dtype=torch.bool, device=x.device)
            mask = torch.cat([seen, ranks[None] <= ranks[:, None]], 1)
        turns, queries = self.turns[positions], x
        for number, block in enumerate(self.blocks):
            attention = block.attention
            queries, keys, values = attention.project_turned(block.attention_norm(x), turns)
            cached = cache.write(number, slot, keys.transpose(0, 1), values.transpose(0, 1))
            x = x + attention.out(attention.attend(queries, *cached, mask))
            x = x + block.feed_forward(block.feed_forward_norm(x))
        cache.advance(slot, len(x))
        return self.norm(x), queries

    def _step(
        self, x: Tensor, positions: Tensor, cache: KVCache, slots: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Return ``[B, D]`` and the last layer's queries ``[B, heads, head_dim]``."""
        count = len(x)
        x = pad_rows(x, self.blocks[0].attention.qkv)
        places, queries = cache.grow(slots), x
        turns = self.turns[positions]
        for number, block in enumerate(self.blocks):
            attention = block.attention
            queries, keys, values = attention.project_turned(block.attention_norm(x), turns)
            cache.put(number, places, keys, values)
            attended = attention.attend_alone(queries, [cache.rows(number, slot) for slot in slots])
            x = x + attention.out(pad_rows(attended, attention.out))
            x = x + block.feed_forward(block.feed_forward_norm(x))
        return self.norm(x[:count]), queries
