"""Triton's interpreter without what it does once an element or a call, and need not."""

from functools import cache
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter

interpreter: Any = triton_interpreter  # what is private has no types


def reduce_by_halves(reduction: Any, given: tuple[Any, ...]) -> list[Any]:
    """Reduce blocks of one axis in the order of a tree, as a card does."""
    dtypes, blocks = [one.dtype for one in given], [one.handle.data for one in given]
    while blocks[0].size > 1:
        halves = zip(*(np.split(block, 2) for block in blocks), strict=True)
        pair = [one for half in halves for one in map(reduction.to_tensor, half, dtypes)]
        blocks = [one.handle.data for one in reduction.combine_fn.fn(*pair)]
    return list(map(reduction.to_tensor, [block.item() for block in blocks], dtypes))


def hasten() -> None:
    """Change the interpreter of this process."""
    interpreter.ReduceOps.generic_reduce = reduce_by_halves
    interpreter._patch_lang = cache(interpreter._patch_lang)  # and the language stays patched
    interpreter._LangPatchScope.restore = lambda scope: None
    for kind in (tl.block_type, tl.pointer_type):
        kind.__hash__ = tl.dtype.__hash__
    interpreter._get_np_dtype = cache(interpreter._get_np_dtype)
