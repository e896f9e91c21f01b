"""Linear layers of 8-bit integers, for CPUs: a quarter of the bytes, and integer products.

Each output row of a matrix has its own scale, fixed at load; each row of activations gets one when
it comes. Between them stands a product of integers, which is exact, so that a row has the same bits
alone or among any others. A scale shared by the whole batch, as dynamic quantisation usually has,
would let a neighbour change them.

Symmetric rounding to nearest, 127 steps to either side (Jacob et al. 2018, arXiv:1712.05877, with
the zero point at 0).

For few rows the time goes into the number of calls, not into the sums. So a norm is not computed
before the layer behind it: dividing a row by its root mean square changes its scale and none of
its integers.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.block import Block

STEPS = 127
_LINE = 64  # bytes that a cache reads at once
_LEAST_SCALE = torch.finfo(torch.float32).tiny  # of a row of zeros
_DIVISOR = torch.tensor(float(STEPS))  # a call with a tensor takes half as long as with a number


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row to integers with a scale of its own.

    Args:
        x: ``[R, D]`` float32.

    Returns:
        ``[R, D]`` int8 of at most `STEPS` in size, and scales ``[R, 1]`` float32: their product
        is ``x`` up to half a scale.
    """
    scales = x.abs().amax(-1, keepdim=True).div_(_DIVISOR).clamp_min_(_LEAST_SCALE)
    return (x / scales).round_().char(), scales


class Int8Linear(nn.Module):
    """A linear layer in place of an `nn.Linear`, and of a norm before it if there is one.

    Float32 in and out, integers between. Its tensors are plain attributes, not buffers: those take
    longer to look up than a small sum to compute. It is made from weights and never saved.

    Attributes:
        weight: ``[out, in]`` int8.
        scales: ``[out]`` float32, of the rows of ``weight``; behind a norm times ``sqrt(in)``.
        bias: ``[out]`` float32, or None.
        gain: ``[in]`` float32, the norm's weight, or None without a norm.
    """

    def __init__(self, linear: nn.Linear, norm: nn.RMSNorm | None = None) -> None:
        super().__init__()
        weight, scales = quantize_rows(linear.weight.detach().float())
        inputs = linear.in_features
        self.weight = _space_rows(weight)
        self.scales = scales[:, 0] * (1 if norm is None else math.sqrt(inputs))
        self.bias = None if linear.bias is None else linear.bias.detach().float()
        self.gain = None if norm is None else norm.weight.detach().float()
        eps = 0.0 if norm is None or norm.eps is None else norm.eps
        self.least = torch.tensor(math.sqrt(inputs * eps))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., in]`` float32 to ``[..., out]``."""
        rows = x if x.ndim == 2 else x.flatten(0, -2)
        integers, row_scales = quantize_rows(rows if self.gain is None else rows * self.gain)
        if self.gain is not None:
            # sqrt(mean(x^2) + eps) is hypot(|x|, sqrt(in eps)) / sqrt(in)
            lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
            row_scales.div_(lengths.hypot_(self.least))
        # int32 holds the sum exactly: 127 * 127 * in stays below 2**31 up to in = 133,000
        y = (torch._int_mm(integers, self.weight.t()) * row_scales).mul_(self.scales)
        if self.bias is not None:
            y.add_(self.bias)
        return y if x.ndim == 2 else y.view(*x.shape[:-1], -1)


def _space_rows(weight: Tensor) -> Tensor:
    """Keep rows that start a power of two apart from sharing the same few lines of the cache.

    From two rows of activations on, torch reads the weight column by column. Two rows with
    ``[1024, 4096]`` take an eighth of the time so.
    """
    inputs = weight.shape[1]
    return F.pad(weight, (0, _LINE))[:, :inputs] if inputs % 512 == 0 else weight


def quantize_linears(model: nn.Module) -> None:
    """Replace every `nn.Linear` inside a model, for good, and each norm that feeds but one.

    Embeddings and the last norm stay float32.
    """
    for module in list(model.modules()):
        if isinstance(module, Block):
            _replace_behind_norm(module, "attention_norm", module.attention, "qkv")
            _replace_behind_norm(module, "feed_forward_norm", module.feed_forward, "gate_up")
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child))


def _replace_behind_norm(block: Block, norm: str, module: nn.Module, name: str) -> None:
    linear, before = module.get_submodule(name), block.get_submodule(norm)
    if isinstance(linear, nn.Linear) and isinstance(before, nn.RMSNorm):
        setattr(module, name, Int8Linear(linear, before))
        setattr(block, norm, nn.Identity())


def is_quantized(model: nn.Module) -> bool:
    """Tell whether `quantize_linears` has been at a model."""
    return any(isinstance(module, Int8Linear) for module in model.modules())
