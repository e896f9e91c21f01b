"""Passes over whole sequences that see all of themselves, several at once, in fixed shapes.

As a recording needs it: all that differs from call to call is read on the device. Nothing is kept
between two passes. The sequences are padded to one number of columns, and padding is masked.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from models.cuda.kernels.reference import attend_padded, gated
from models.stack.block import Block, RmsNorm


class WholeLayout(NamedTuple):
    """What the positions of some sequences are: the same for all levels.

    Attributes:
        rotations: ``[B * T, 1, head_dim / 2]`` complex.
        bias: ``[B, 1, group * T, T]`` of the stack's dtype: 0 where a position is visible, else
            -inf; once for each of the heads that share a KV head.
    """

    rotations: Tensor
    bias: Tensor


class FixedWhole:
    """Passes of the stack without a cache and without an order: each position sees every other."""

    def __init__(self, blocks: Sequence[Block], norm: RmsNorm, rotations: Tensor) -> None:
        """Allocate what is constant; call in inference mode.

        Args:
            blocks: The layers.
            norm: The final norm.
            rotations: ``[P, 1, head_dim / 2]`` complex, of each position.
        """
        self._blocks, self._norm, self._rotations = blocks, norm, rotations
        self._group = blocks[0].attention.heads // blocks[0].attention.kv_heads
        self._visible = torch.zeros((), dtype=norm.weight.dtype, device=rotations.device)
        self._masked = torch.full_like(self._visible, -torch.inf)

    def layout(self, positions: Tensor, lengths: Tensor) -> WholeLayout:
        """Lay out sequences.

        Args:
            positions: ``[B, T]`` int64, position ids; any in the padding.
            lengths: ``[B]`` int64, how many come before the padding, at least one.
        """
        columns = positions.shape[1]
        visible = torch.arange(columns, device=positions.device) < lengths[:, None]
        bias = torch.where(visible, self._visible, self._masked)[:, None, None]
        return WholeLayout(
            self._rotations[positions.flatten()],
            bias.expand(-1, -1, self._group * columns, -1),
        )

    def run(self, x: Tensor, layout: WholeLayout) -> Tensor:
        """Run sequences.

        Args:
            x: ``[B * T, D]``, those of a sequence together; finite in the padding.
            layout: Of the sequences.

        Returns:
            ``[B * T, D]`` after the final norm.
        """
        batch = len(layout.bias)
        for block in self._blocks:
            attention, feed_forward = block.attention, block.feed_forward
            queries, *cached = attention.project_complex(block.attention_norm(x), layout.rotations)
            keys, values = (
                one.reshape(batch, -1, *one.shape[1:]).transpose(1, 2) for one in cached
            )
            attended = attend_padded(queries, keys, values, layout.bias)
            x = attention.added_to(x, attended)
            gate_up = feed_forward.gate_up(block.feed_forward_norm(x))
            x = feed_forward.added_to(x, gated(gate_up, feed_forward.kind), in_place=True)
        return self._norm(x)
