"""A layer of the stack: attention and a gated feed-forward, each behind a norm.

A few rows at a time the cost is that of the calls, not of the sums: what has a form of fewer calls
takes it where no gradient is wanted.
"""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.config import ModelConfig


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
        if x.dtype == torch.bfloat16:  # where autocast chose it for the product alone, x is not
            rotated = rotated.to(x.dtype)
        queries, keys = rotated.split([self.heads, self.kv_heads], -2)
        return queries, keys, values

    def project_turned(self, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `project`, by one complex product, which leaves (a, b) of each rotation side by side.

        So do queries and keys alike: their products are those of `project`.

        Args:
            x: ``[>= S, D]`` float32, float64 or bfloat16, which is turned in float32; rows past S
                are padding and fall away.
            turns: ``[S, 1, head_dim / 2]`` complex, of each position.
        """
        qkv = self.qkv(x)[: len(turns)].view(len(turns), -1, self.head_dim)
        rotated, values = qkv.split([self.heads + self.kv_heads, self.kv_heads], 1)
        if narrow := qkv.dtype == torch.bfloat16:
            rotated = rotated.float()
        turned = torch.complex(*rotated.chunk(2, -1)).mul_(turns)
        pairs = torch.view_as_real(turned).flatten(2)
        if narrow:
            pairs = pairs.to(torch.bfloat16)
        queries, keys = torch.split(pairs, [self.heads, self.kv_heads], 1)
        return queries, keys, values

    def project_paired(self, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `project_turned`, without complex numbers, which compilers do not know.

        Args:
            x: ``[S, D]``.
            turns: ``[S, 1, head_dim / 2, 2]`` float32, cosine and sine of each position.
        """
        qkv = self.qkv(x).view(len(turns), -1, self.head_dim)
        rotated, values = qkv.split([self.heads + self.kv_heads, self.kv_heads], 1)
        (a, b), (cos, sin) = rotated.chunk(2, -1), turns.unbind(-1)
        pairs = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(2)
        queries, keys = torch.split(pairs.to(qkv.dtype), [self.heads, self.kv_heads], 1)
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
            mask: ``[S, T]`` bool, or what is added to the scores; None where all is visible.

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

    def attend_together(
        self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor
    ) -> Tensor:
        """Attend from one new row of each of several slots, in shapes that do not say how long.

        One call for all slots: what stands past a slot's length is read, and counts nothing as
        long as it is finite.

        Args:
            queries: ``[B, heads, head_dim]``.
            keys: ``[B, kv_heads, T, head_dim]``.
            values: ``[B, kv_heads, T, head_dim]``.
            bias: ``[B, 1, 1, T]`` of their dtype: 0 where a slot holds something, else -inf.

        Returns:
            ``[B, D]``.
        """
        folded = queries.view(len(queries), self.kv_heads, -1, self.head_dim)
        bias = bias.expand(*folded.shape[:3], -1)
        return F.scaled_dot_product_attention(folded, keys, values, attn_mask=bias).flatten(1)


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
        # For GELU torch has another kernel, with other bits, where all is contiguous. In training
        # it is the quicker one, but for few rows it takes thrice as long. One row is contiguous.
        if torch.is_grad_enabled():
            return self.down(self.activation(gate.contiguous()) * up)
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
        if torch.is_grad_enabled() or x.dtype != torch.float32 or not x.is_cpu:
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
