"""How kernels are launched: before the last has ended, where a card can. Imports Triton.

A kernel of a step takes microseconds, of which its launch is one. On cards since Hopper it may be
launched while the one before runs, and waits for it itself (programmatic dependent launch, CUDA
programming guide): that hides the launch, and what no kernel writes is read meanwhile.
"""

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def await_others(EARLY: tl.constexpr):
    """Wait for all that was launched before, where it may run still; let the next be launched."""
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()


@cache
def _overlap() -> bool:
    return not triton.knobs.runtime.interpret and torch.cuda.get_device_capability() >= (9, 0)


def launch(kernel: Any, grid: tuple[int, ...], *given: object, warps: int = 4) -> None:
    """Launch a kernel, whose last argument is whether it is launched early."""
    if _overlap():
        kernel[grid](*given, True, num_warps=warps, launch_pdl=True)
    else:
        kernel[grid](*given, False, num_warps=warps)
