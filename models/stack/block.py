"""One layer of the stack: attention and a feed-forward, each after a norm, as a `BlockSpec` says.

For a few rows the overhead of calling operators outweighs the arithmetic, so inference takes the
form with the fewest calls and training the plain one.
"""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.config import ModelConfig


class Attention(nn.Module):
    """Grouped-query attention; one matrix for queries, keys and values."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.kv_heads = config.kv_heads
        self.head_dim = config.head_dim
        bias = config.block.bias
        self.qkv = nn.Linear(
            config.width, (config.heads + 2 * config.kv_heads) * config.head_dim, bias=bias
        )
        self.out = nn.Linear(config.width, config.width, bias=bias)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries ``[..., heads, head_dim]``, keys and values, the first two rotated.

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
        if x.dtype == torch.bfloat16:  # under autocast only the product is bfloat16, x is float32
            rotated = rotated.to(x.dtype)
        queries, keys = rotated.split([self.heads, self.kv_heads], -2)
        return queries, keys, values

    def project_complex(self, x: Tensor, rotations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `project` of ``[>= S, D]``, by one complex product; rows past S are padding.

        The two components of each rotation end up next to each other instead of head_dim / 2
        apart, in queries and keys alike, so that their dot products are those of `project`.

        Args:
            rotations: ``[S, 1, head_dim / 2]`` complex, of each position.
        """
        qkv = self.qkv(x)[: len(rotations)].view(len(rotations), -1, self.head_dim)
        rotated, values = qkv.split([self.heads + self.kv_heads, self.kv_heads], 1)
        if narrow := qkv.dtype == torch.bfloat16:
            rotated = rotated.float()
        product = torch.complex(*rotated.chunk(2, -1)).mul_(rotations)
        pairs = torch.view_as_real(product).flatten(2)
        if narrow:
            pairs = pairs.to(torch.bfloat16)
        queries, keys = torch.split(pairs, [self.heads, self.kv_heads], 1)
        return queries, keys, values

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor) -> Tensor:
        """Attend within whole sequences ``[B, S, D]``, for training.

        Written out, not fused: on a CPU the products and the softmax in bfloat16 train twice as
        fast as the fused kernel with a mask, and the cached passes have an independent reference.

        Args:
            bias: ``[B, 1, S, S]``, 0 where visible, else -inf.
        """
        queries, keys, values = (t.transpose(1, 2) for t in self.project(x, cos, sin))
        group = self.heads // self.kv_heads
        keys, values = (t.repeat_interleave(group, 1) for t in (keys, values))
        scores = (queries * self.head_dim**-0.5) @ keys.transpose(-1, -2)
        y = (scores + bias.to(scores.dtype)).softmax(-1) @ values
        return self.out(y.transpose(1, 2).flatten(2))

    def attend_each(self, queries: Tensor, cached: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Attend from one new position of each of several slots: ``[B, D]``.

        One kernel call a slot, over its valid length only: no other slot can change its bits.

        Args:
            queries: ``[B, heads, head_dim]``.
            cached: Keys and values ``[1, kv_heads, T, head_dim]`` of each slot; T may differ.
        """
        folded = queries.view(len(cached), 1, self.kv_heads, -1, self.head_dim)
        attended = [
            F.scaled_dot_product_attention(row, keys, values)
            for row, (keys, values) in zip(folded.unbind(), cached, strict=True)
        ]
        return torch.cat(attended).flatten(1)


class FeedForward(nn.Module):
    """``down(act(gate x) * up x)``; one matrix for gate and up. Plain: ``down(relu(gate x))``."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        spec = config.block
        self.gated = spec.ffn == "gated"
        self.gate_up = nn.Linear(config.width, (1 + self.gated) * config.ffn, bias=spec.bias)
        self.down = nn.Linear(config.ffn, config.width, bias=spec.bias)
        activation = {"gelu": F.gelu, "silu": F.silu, "relu": F.relu}[config.activation]
        self.activation = cast("Callable[[Tensor], Tensor]", activation)
        self.kind = config.activation

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., D]`` to the same shape."""
        if not self.gated:
            return self.down(self.activation(self.gate_up(x)))
        gate, up = self.gate_up(x).chunk(2, -1)
        # For contiguous input torch has another GELU kernel, with other bits. It is the faster one
        # in training but takes three times as long for few rows. A single row is contiguous, so
        # it is expanded to two to get the kernel that several rows get.
        if torch.is_grad_enabled():
            return self.down(self.activation(gate.contiguous()) * up)
        contiguous = gate.is_contiguous()
        activated = self.activation(gate.expand(2, *gate.shape) if contiguous else gate)
        return self.down((activated[0] if contiguous else activated) * up)


class RmsNorm(nn.RMSNorm):
    """`torch.nn.RMSNorm`, in half the time for few rows in inference."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps=eps)
        # Plain attributes, not buffers: looking up a buffer is a measurable part of the time.
        self.root_of_eps = torch.tensor((width * eps) ** 0.5)
        self.root = torch.tensor(width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., D]`` to the same shape."""
        if torch.is_grad_enabled() or x.dtype != torch.float32 or not x.is_cpu:
            return super().forward(x)
        # sqrt(mean(x^2) + eps) is hypot(|x|, sqrt(D eps)) / sqrt(D)
        lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x * (self.root / lengths.hypot_(self.root_of_eps))).mul_(self.weight)


class Block(nn.Module):
    """Attention and feed-forward, each after a norm and with a residual connection."""

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
