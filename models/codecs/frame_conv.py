"""A convolution over frames that can go on where a stream stopped."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.codecs.streaming import DecoderState

KERNEL = 7


class FrameConv(nn.Module):
    """A convolution of `KERNEL` over ``[B, T, C]``, of all channels or of each by itself.

    Causal with the past that a stream remembers, zeros before its beginning; or centred. It
    computes in the type of what it is given, whatever its weights have.
    """

    def __init__(self, channels_in: int, channels_out: int, *, causal: bool, groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels_in, channels_out, KERNEL, groups=groups)
        self.causal = causal

    def forward(self, x: Tensor, state: DecoderState | None) -> Tensor:
        """Return as many frames, ``[B, T, C']``; bring the state up to date, if there is one."""
        past = KERNEL - 1 if self.causal else KERNEL // 2
        rows = x.transpose(1, 2)
        if state is None or self not in state:
            rows = F.pad(rows, (past, KERNEL - 1 - past))
        else:
            rows = torch.cat([state[self], rows], -1)
        if state is not None:
            state[self] = rows[..., rows.shape[-1] - past :]
        if x.dtype == torch.float64:
            bias = None if self.conv.bias is None else self.conv.bias.double()
            made = F.conv1d(rows, self.conv.weight.double(), bias, groups=self.conv.groups)
            return made.transpose(1, 2)
        return self.conv(rows).transpose(1, 2)
