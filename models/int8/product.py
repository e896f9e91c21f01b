"""The exact product of int8 rows and an int8 matrix, in the processor's widest instructions.

Torch's integer product packs the matrix anew at every call. Here the matrix is packed once, into
tiles of 32 columns in the order in which they are read:

    tiles[n, q, c, i] = matrix[4 q + i, 32 n + c] + 128

A quad, four consecutive entries of a column, is what one lane of `models.int8.processors` takes, as
unsigned bytes, hence the zero point of 128. It adds 128 times the row's sum to the result, which is
subtracted again. A row has the same bits on all processors and in every batch.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from cpu.arrays import Int8s, Int32s, Uint8s
from cpu.compiling import kernel
from models.int8.processors import I8, I32, I64, QUAD, Processor, pointer, processors, splat

RowKernel = Callable[[Int8s, int, Uint8s, int, Int32s, Int32s], None]

COLUMNS: Final = 32  # of a tile
ZERO_POINT: Final = 128  # represents 0 in a tile
TILES_AT_ONCE: Final = 4  # multiplied by all rows before the next tiles are read

_INT32_BYTES = 4


def pack(matrix: Int8s) -> Uint8s:
    """Pack a matrix ``[K, N]`` into tiles ``[N / 32, K / 4, 32, 4]``, both rounded up."""
    rows, columns = matrix.shape
    quads = -(-rows // QUAD)
    tiles = -(-columns // COLUMNS)
    padded = np.zeros((quads * QUAD, tiles * COLUMNS), np.int8)
    padded[:rows, :columns] = matrix
    packed = padded.reshape(quads, QUAD, tiles, COLUMNS).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(packed).view(np.uint8) ^ np.uint8(ZERO_POINT)


def row_kernel(processor: Processor, rows: int) -> RowKernel:
    """Return a numba intrinsic that multiplies ``rows`` rows by up to 4 tiles.

    Its arguments are ``x`` ``[R, K]`` int8, the index of the first row, ``tiles``, the index of the
    first tile, the offsets ``[R]`` int32, which are subtracted from each row's sums to undo the
    zero point, and the output ``[R, N]`` int32, written at the same rows and at the tiles' columns.
    The last axis of ``x`` and of the output, and all but the first axis of ``tiles``, must be
    contiguous.
    """

    @intrinsic
    def multiply_rows(
        _: Any, x: Any, row: Any, tiles: Any, tile: Any, offsets: Any, out: Any
    ) -> Any:
        signature = types.void(x, row, tiles, tile, offsets, out)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kinds = signature.args
            arrays = [
                make_array(kinds[place])(context, builder, values[place]) for place in (0, 2, 4, 5)
            ]
            _emit_loops(processor, rows, builder, values[1], values[3], *arrays)
            return context.get_dummy_value()

        return signature, generate

    return cast("RowKernel", multiply_rows)


def _emit_loops(
    processor: Processor,
    rows: int,
    builder: Any,
    row: Any,
    tile: Any,
    x: Any,
    tiles: Any,
    offsets: Any,
    out: Any,
) -> None:
    """Emit loops over up to `TILES_AT_ONCE` tiles: as many at once as registers hold, then one."""
    count, quads = cgutils.unpack_tuple(builder, tiles.shape)[:2]
    together = max(1, min(processor.rows // rows, TILES_AT_ONCE))
    limit = builder.add(tile, I64(TILES_AT_ONCE))
    end = builder.select(builder.icmp_signed("<", limit, count), limit, count)
    loops = [(tile, end, together)]
    if together > 1:
        middle = builder.sub(end, builder.srem(builder.sub(end, tile), I64(together)))
        loops = [(tile, middle, together), (middle, end, 1)]
    indices = [builder.add(row, I64(place)) for place in range(rows)]
    for begin, stop, width in loops:
        with cgutils.for_range_slice(builder, begin, stop, I64(width)) as (first, _):
            addresses = [
                _address(builder, tiles, builder.add(first, I64(place))) for place in range(width)
            ]
            column = builder.mul(first, I64(COLUMNS * _INT32_BYTES))
            for start in range(0, rows, processor.rows):
                group = indices[start : start + processor.rows]
                _emit_dot_products(
                    processor,
                    builder,
                    quads,
                    [_address(builder, x, index) for index in group],
                    addresses,
                    [
                        builder.load(pointer(builder, _address(builder, offsets, index), I32))
                        for index in group
                    ],
                    [builder.add(_address(builder, out, index), column) for index in group],
                )


def _emit_dot_products(
    processor: Processor,
    builder: Any,
    quads: Any,
    rows: Sequence[Any],
    tiles: Sequence[Any],
    offsets: Sequence[Any],
    outs: Sequence[Any],
) -> None:
    """Emit the products of some rows and tiles, with all sums kept in registers."""
    lanes = ir.VectorType(I32, processor.lanes)
    size = processor.lanes * QUAD
    vectors = range(COLUMNS // processor.lanes)
    places = [(tile, vector) for tile in tiles for vector in vectors]
    sums = [[cgutils.alloca_once(builder, processor.sums) for _ in places] for _ in rows]
    for accumulator in (accumulator for row in sums for accumulator in row):
        builder.store(ir.Constant(processor.sums, None), accumulator)
    with cgutils.for_range(builder, quads) as loop:
        ahead = builder.mul(loop.index, I64(QUAD))
        quads_of_rows = []
        for row in rows:
            quad = builder.load(pointer(builder, builder.add(row, ahead), I32), align=1)
            quads_of_rows.append(processor.broadcast(builder, quad))
        ahead = builder.mul(loop.index, I64(COLUMNS * QUAD))
        for place, (tile, vector) in enumerate(places):
            address = builder.add(builder.add(tile, ahead), I64(vector * size))
            column_quads = builder.load(pointer(builder, address, ir.VectorType(I8, size)), align=1)
            for row, quad in zip(sums, quads_of_rows, strict=True):
                total = processor.add(builder, builder.load(row[place]), column_quads, quad)
                builder.store(total, row[place])
    for row, offset, out in zip(sums, offsets, outs, strict=True):
        for place, accumulator in enumerate(row):
            reduced = processor.reduce(builder, builder.load(accumulator))
            address = builder.add(out, I64(place * processor.lanes * _INT32_BYTES))
            exact = builder.sub(reduced, splat(builder, offset, lanes))
            builder.store(exact, pointer(builder, address, lanes), align=_INT32_BYTES)


def _address(builder: Any, array: Any, index: Any) -> Any:
    """Return the address, an i64, of an array's entry ``index`` on the first axis."""
    step = cgutils.unpack_tuple(builder, array.strides)[0]
    return builder.add(builder.ptrtoint(array.data, I64), builder.mul(index, step))


_eight, _four, _two, _one = (row_kernel(processors()[0], rows) for rows in (8, 4, 2, 1))


@kernel
def multiply(rows: Int8s, tiles: Uint8s, out: Int32s) -> None:
    """Multiply rows by a packed matrix: ``out = rows @ matrix``.

    Args:
        rows: ``[R, K]``, K = 4 * tiles.shape[1] below 2**16; the last axis contiguous.
        tiles: ``[N / 32, K / 4, 32, 4]``, see `pack`; all but the first axis contiguous.
        out: ``[R, 32 * len(tiles)]``, written, padding columns too; the last axis contiguous. Its
            shape is not checked: a narrower one is overrun.
    """
    count = len(rows)
    offsets = np.empty(count, np.int32)
    for r in range(count):
        total = np.int32(0)
        for k in range(rows.shape[1]):
            total = np.int32(total + np.int32(rows[r, k]))
        offsets[r] = np.int32(ZERO_POINT) * total
    for tile in range(0, len(tiles), TILES_AT_ONCE):
        r = 0
        while r + 8 <= count:
            _eight(rows, r, tiles, tile, offsets, out)
            r += 8
        if r + 4 <= count:
            _four(rows, r, tiles, tile, offsets, out)
            r += 4
        if r + 2 <= count:
            _two(rows, r, tiles, tile, offsets, out)
            r += 2
        if r < count:
            _one(rows, r, tiles, tile, offsets, out)
