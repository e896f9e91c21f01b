"""The gate of a feed-forward in one kernel. Imports Triton."""

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def gated_kernel(gate_up, out, WIDTH: tl.constexpr, GELU: tl.constexpr, BLOCK: tl.constexpr):
    """Multiply ``BLOCK`` entries of one row of ``[S, 2 * WIDTH]`` a program."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + at, inside, 0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + at, inside, 0.0).to(tl.float32)
    if GELU:
        activated = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
    else:
        activated = gate * tl.sigmoid(gate)
    tl.store(out + row * WIDTH + at, (activated * up).to(out.dtype.element_ty), inside)


def gated(gate_up: Tensor, activation: str) -> Tensor:
    """As `models.cuda.kernels.reference.gated`."""
    gate_up = gate_up.contiguous()
    rows, width = len(gate_up), gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, width)
    grid = (rows, triton.cdiv(width, _BLOCK))
    gated_kernel[grid](gate_up, out, width, activation == "gelu", _BLOCK)
    return out
