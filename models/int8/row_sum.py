"""Float sums in a fixed order, so that every processor and every compilation rounds alike.

A compiler cannot vectorise a sequential float sum without changing its bits. So the order of a
vectorised sum is part of the definition here: entry ``d`` is added to partial sum ``d % 16``, then
the upper half of the partial sums is added to the lower half until one is left. It is written with
LLVM vectors of 16 floats, which each processor splits into its own vector size.
"""

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from cpu.arrays import Floats
from cpu.compiling import kernel
from models.int8.processors import F32, I64, pointer, shuffle

LANES: Final = 16
_VECTOR: Final = ir.VectorType(F32, LANES)
_FLOAT_BYTES: Final = 4


@intrinsic
def _sum_of_whole_vectors(_: Any, row: Any) -> Any:
    """Sum the first ``len(row) // 16 * 16`` entries of a contiguous float32 row."""
    signature = types.float32(row)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = make_array(signature.args[0])(context, builder, values[0])
        (count,) = cgutils.unpack_tuple(builder, array.shape)
        start = builder.ptrtoint(array.data, I64)
        partial = cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, None))
        with cgutils.for_range(builder, builder.sdiv(count, I64(LANES))) as loop:
            address = builder.add(start, builder.mul(loop.index, I64(LANES * _FLOAT_BYTES)))
            entries = builder.load(pointer(builder, address, _VECTOR), align=_FLOAT_BYTES)
            builder.store(builder.fadd(builder.load(partial), entries), partial)
        sums = builder.load(partial)
        lanes = LANES
        while lanes > 1:
            lanes //= 2
            halves = [shuffle(builder, sums, range(first, first + lanes)) for first in (0, lanes)]
            sums = builder.fadd(*halves)
        return builder.extract_element(sums, I64(0))

    return signature, generate


@kernel
def sum_row(row: Floats) -> np.float32:
    """Return the sum of a contiguous ``row`` ``[D]``, with the same bits on every processor."""
    total: np.float32 = _sum_of_whole_vectors(row)  # type: ignore[call-arg]  # numba passes the context
    for d in range(len(row) // LANES * LANES, len(row)):
        total += row[d]
    return total
