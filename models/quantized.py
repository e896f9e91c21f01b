"""Linear layers of 8-bit integers, for CPUs: a quarter of the bytes, and integer products.

Each output row of a matrix has its own scale, fixed at load; each row of activations gets one when
it comes. Between them stands a product of integers, which is exact, so that a row has the same bits
alone or among any others. A scale shared by the whole batch, as dynamic quantisation usually has,
would let a neighbour change them.

Symmetric rounding to nearest, 127 steps to either side (Jacob et al. 2018, arXiv:1712.05877, with
the zero point at 0).
"""

import torch
from torch import Tensor, nn

STEPS = 127
_LEAST_SCALE = torch.finfo(torch.float32).tiny  # of a row of zeros


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row to integers with a scale of its own.

    Args:
        x: ``[R, D]`` float32.

    Returns:
        ``[R, D]`` int8 of at most `STEPS` in size, and scales ``[R, 1]`` float32: their product
        is ``x`` up to half a scale.
    """
    scales = x.abs().amax(-1, keepdim=True).mul_(1 / STEPS).clamp_min_(_LEAST_SCALE)
    return (x / scales).round_().to(torch.int8), scales


class Int8Linear(nn.Module):
    """A linear layer in place of an `nn.Linear`: float32 in and out, integers between.

    Attributes:
        weight: ``[out, in]`` int8.
        scales: ``[out]`` float32, of the rows of ``weight``.
        bias: ``[out]`` float32, or None.
    """

    weight: Tensor
    scales: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, scales = quantize_rows(linear.weight.detach().float())
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales[:, 0])
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float())

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., in]`` float32 to ``[..., out]``."""
        rows, row_scales = quantize_rows(x if x.ndim == 2 else x.flatten(0, -2))
        # int32 holds the sum exactly: 127 * 127 * in stays below 2**31 up to in = 133,000
        y = (torch._int_mm(rows, self.weight.t()) * row_scales).mul_(self.scales)
        if self.bias is not None:
            y.add_(self.bias)
        return y if x.ndim == 2 else y.view(*x.shape[:-1], -1)


def quantize_linears(model: nn.Module) -> None:
    """Replace every `nn.Linear` inside a model, for good; embeddings and norms stay float32."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child))


def is_quantized(model: nn.Module) -> bool:
    """Tell whether `quantize_linears` has been at a model."""
    return any(isinstance(module, Int8Linear) for module in model.modules())
