"""Rows of int8 by a matrix of int8: exact, in the widest instructions that a processor has for it.

Torch has such a product, but packs the matrix anew at every call. Here it lies as the sums read it,
in tiles of 32 columns:

    tiles[n, q, c, i] = matrix[4 q + i, 32 n + c] + 128

Four neighbours of a column are what one lane of `models.int8.processors` takes, as bytes that have
no sign, hence the 128. These add 128 times the row's sum, which is taken off again. A row has the
same bits on all processors, alone or among others.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from models.int8.arrays import Int8s, Int32s, Uint8s
from models.int8.compiling import kernel
from models.int8.processors import I8, I32, I64, NEIGHBOURS, Processor, pointer, processors, splat

Block = Callable[[Int8s, int, Uint8s, int, Int32s, Int32s], None]

COLUMNS: Final = 32  # of a tile
ZERO: Final = 128  # what stands for 0 in a tile
AT_ONCE: Final = 4  # tiles that all rows go through before the next are read

_INT32_BYTES = 4


def lay(matrix: Int8s) -> Uint8s:
    """Return the tiles of a matrix ``[K, N]``: ``[N / 32, K / 4, 32, 4]``, both rounded up."""
    rows, columns = matrix.shape
    quads, tiles = -(-rows // NEIGHBOURS), -(-columns // COLUMNS)
    whole = np.zeros((quads * NEIGHBOURS, tiles * COLUMNS), np.int8)
    whole[:rows, :columns] = matrix
    laid = whole.reshape(quads, NEIGHBOURS, tiles, COLUMNS).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(laid).view(np.uint8) ^ np.uint8(ZERO)


def block(processor: Processor, rows: int) -> Block:
    """Return what sends some rows through at most `AT_ONCE` tiles.

    It takes rows ``[R, K]``, the first of those to send, tiles, the first of those to send through,
    what the 128 add to each row ``[R]``, and where to write ``[R, N]``. The last axis of the rows
    and of what is written is contiguous, of the tiles all but the first.
    """

    @intrinsic
    def send(_: Any, x: Any, row: Any, tiles: Any, tile: Any, added: Any, out: Any) -> Any:
        signature = types.void(x, row, tiles, tile, added, out)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kinds = signature.args
            arrays = [
                make_array(kinds[place])(context, builder, values[place]) for place in (0, 2, 4, 5)
            ]
            _send(processor, rows, builder, values[1], values[3], *arrays)
            return context.get_dummy_value()

        return signature, generate

    return cast("Block", send)


def _send(
    processor: Processor,
    rows: int,
    builder: Any,
    row: Any,
    tile: Any,
    x: Any,
    tiles: Any,
    added: Any,
    out: Any,
) -> None:
    """Write the loops: as many tiles together as there are registers for, then those left over."""
    count, quads = cgutils.unpack_tuple(builder, tiles.shape)[:2]
    together = max(1, min(processor.rows // rows, AT_ONCE))
    limit = builder.add(tile, I64(AT_ONCE))
    end = builder.select(builder.icmp_signed("<", limit, count), limit, count)
    loops = [(tile, end, together)]
    if together > 1:
        middle = builder.sub(end, builder.srem(builder.sub(end, tile), I64(together)))
        loops = [(tile, middle, together), (middle, end, 1)]
    numbers = [builder.add(row, I64(place)) for place in range(rows)]
    for begin, stop, width in loops:
        with cgutils.for_range_slice(builder, begin, stop, I64(width)) as (first, _):
            through = [
                _address(builder, tiles, builder.add(first, I64(place))) for place in range(width)
            ]
            column = builder.mul(first, I64(COLUMNS * _INT32_BYTES))
            for start in range(0, rows, processor.rows):
                some = numbers[start : start + processor.rows]
                _sum(
                    processor,
                    builder,
                    quads,
                    [_address(builder, x, number) for number in some],
                    through,
                    [
                        builder.load(pointer(builder, _address(builder, added, number), I32))
                        for number in some
                    ],
                    [builder.add(_address(builder, out, number), column) for number in some],
                )


def _sum(
    processor: Processor,
    builder: Any,
    quads: Any,
    rows: Sequence[Any],
    tiles: Sequence[Any],
    added: Sequence[Any],
    outs: Sequence[Any],
) -> None:
    """Write the sums of some rows through some tiles, which stay in registers to the end.

    Args:
        processor: Takes them.
        builder: Writes the instructions.
        quads: Of neighbours, in a row.
        rows: Their addresses.
        tiles: Their addresses.
        added: What is taken off each row's sums.
        outs: Where each row's sums go, tile behind tile.
    """
    lanes, size = ir.VectorType(I32, processor.lanes), processor.lanes * NEIGHBOURS
    vectors = range(COLUMNS // processor.lanes)
    places = [(tile, vector) for tile in tiles for vector in vectors]
    sums = [[cgutils.alloca_once(builder, processor.sums) for _ in places] for _ in rows]
    for one in (one for row in sums for one in row):
        builder.store(ir.Constant(processor.sums, None), one)
    with cgutils.for_range(builder, quads) as loop:
        ahead = builder.mul(loop.index, I64(NEIGHBOURS))
        quads_of_rows = []
        for row in rows:
            quad = builder.load(pointer(builder, builder.add(row, ahead), I32), align=1)
            quads_of_rows.append(processor.spread(builder, quad))
        ahead = builder.mul(loop.index, I64(COLUMNS * NEIGHBOURS))
        for place, (tile, vector) in enumerate(places):
            address = builder.add(builder.add(tile, ahead), I64(vector * size))
            neighbours = builder.load(pointer(builder, address, ir.VectorType(I8, size)), align=1)
            for row, quad in zip(sums, quads_of_rows, strict=True):
                more = processor.add(builder, builder.load(row[place]), neighbours, quad)
                builder.store(more, row[place])
    for row, much, out in zip(sums, added, outs, strict=True):
        for place, one in enumerate(row):
            whole = processor.whole(builder, builder.load(one))
            address = builder.add(out, I64(place * processor.lanes * _INT32_BYTES))
            exact = builder.sub(whole, splat(builder, much, lanes))
            builder.store(exact, pointer(builder, address, lanes), align=_INT32_BYTES)


def _address(builder: Any, array: Any, index: Any) -> Any:
    """Return the address of a place on the first axis."""
    step = cgutils.unpack_tuple(builder, array.strides)[0]
    return builder.add(builder.ptrtoint(array.data, I64), builder.mul(index, step))


_eight, _four, _two, _one = (block(processors()[0], rows) for rows in (8, 4, 2, 1))


@kernel
def multiply(rows: Int8s, tiles: Uint8s, out: Int32s) -> None:
    """Write ``rows @ matrix``.

    Args:
        rows: ``[R, K]``, K a multiple of 4 below 2**16; the last axis contiguous.
        tiles: ``[N / 32, K / 4, 32, 4]``, see `lay`; all but the first axis contiguous.
        out: ``[R, N]``, written; the last axis contiguous.
    """
    count = len(rows)
    added = np.empty(count, np.int32)
    for r in range(count):
        total = np.int32(0)
        for k in range(rows.shape[1]):
            total = np.int32(total + np.int32(rows[r, k]))
        added[r] = np.int32(ZERO) * total
    for tile in range(0, len(tiles), AT_ONCE):
        r = 0
        while r + 8 <= count:
            _eight(rows, r, tiles, tile, added, out)
            r += 8
        if r + 4 <= count:
            _four(rows, r, tiles, tile, added, out)
            r += 4
        if r + 2 <= count:
            _two(rows, r, tiles, tile, added, out)
            r += 2
        if r < count:
            _one(rows, r, tiles, tile, added, out)
