"""Rows of int8 by a matrix of int8: exact, in the widest instructions that a processor has for it.

Torch has such a product, but packs the matrix anew at every call. Here it lies as the sums read it,
in tiles of 32 columns:

    tiles[n, q, c, i] = matrix[4 q + i, 32 n + c] + 128

Four neighbours of a column are what VPDPBUSD sums for each of its lanes: four bytes that have no
sign, hence the 128, by four that have one (Intel 64 and IA-32 Architectures Software Developer's
Manual, volume 2). The 128 add 128 times the row's sum, which is taken off again. Other processors
read the same tiles by other instructions. A sum of integers is the same in any order, so a row has
the same bits on all of them, alone or among others.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, cast

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from models.arrays import Int8s, Int32s, Uint8s
from models.compiling import kernel

Block = Callable[[Int8s, int, Uint8s, int, Int32s, Int32s], None]

COLUMNS: Final = 32  # of a tile
NEIGHBOURS: Final = 4
ZERO: Final = 128  # what stands for 0 in a tile
AT_ONCE: Final = 4  # tiles that all rows go through before the next are read

_i8, _i16, _i32, _i64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


class Processor(NamedTuple):
    """How sums are taken.

    Args:
        instruction: What LLVM calls it; none is plain multiplication.
        lanes: Columns at once.
        parts: Sums that are kept of a column, to be added at the end.
    """

    instruction: str
    lanes: int
    parts: int


VNNI: Final = Processor("llvm.x86.avx512.vpdpbusd.512", lanes=16, parts=1)
AVX2: Final = Processor("llvm.x86.avx2.pmadd.wd", lanes=8, parts=2)
PLAIN: Final = Processor("", lanes=4, parts=4)


def processors() -> Sequence[Processor]:
    """Return what this machine can do, the best first."""
    has = binding.get_host_cpu_features()
    found = [VNNI] if has.get("avx512vnni") else []
    return [*found, AVX2, PLAIN] if has.get("avx2") else [*found, PLAIN]


def lay(matrix: Int8s) -> Uint8s:
    """Return the tiles of a matrix ``[K, N]``: ``[N / 32, K / 4, 32, 4]``, both rounded up."""
    rows, columns = matrix.shape
    quads, tiles = -(-rows // NEIGHBOURS), -(-columns // COLUMNS)
    whole = np.zeros((quads * NEIGHBOURS, tiles * COLUMNS), np.int8)
    whole[:rows, :columns] = matrix
    laid = whole.reshape(quads, NEIGHBOURS, tiles, COLUMNS).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(laid).view(np.uint8) ^ np.uint8(ZERO)


def block(processor: Processor, rows: int) -> Block:
    """Return what sends some rows through some tiles, all sums being kept in registers.

    It takes rows ``[R, K]``, the first of those to send, tiles, the first of the `AT_ONCE` to send
    through, what each row adds by the 128, ``[R]``, and ``[R, N]`` to write to. The last axis of
    the rows and of what is written is contiguous, of the tiles all but the first.
    """
    together = min(8 // rows, AT_ONCE)

    @intrinsic
    def send(_: Any, x: Any, row: Any, tiles: Any, tile: Any, offsets: Any, out: Any) -> Any:
        signature = types.void(x, row, tiles, tile, offsets, out)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            arrays = {
                place: make_array(signature.args[place])(context, builder, values[place])
                for place in (0, 2, 4, 5)
            }

            def at(place: int, index: Any) -> Any:
                array = arrays[place]
                step = cgutils.unpack_tuple(builder, array.strides)[0]
                address = builder.ptrtoint(array.data, _i64)
                return builder.add(address, builder.mul(index, step))

            first, begin = values[1], values[3]
            count = cgutils.unpack_tuple(builder, arrays[2].shape)[0]
            quads = cgutils.unpack_tuple(builder, arrays[2].shape)[1]
            limit = builder.add(begin, _i64(AT_ONCE))
            end = builder.select(builder.icmp_signed("<", limit, count), limit, count)
            sums = _Sums(processor, builder)
            xs = [at(0, builder.add(first, _i64(r))) for r in range(rows)]
            outs = [at(5, builder.add(first, _i64(r))) for r in range(rows)]
            taken = [
                builder.load(_pointer(builder, at(4, builder.add(first, _i64(r))), _i32))
                for r in range(rows)
            ]

            def go(begin: Any, end: Any, width: int) -> None:
                with cgutils.for_range_slice(builder, begin, end, _i64(width)) as (tile, _):
                    ws = [at(2, builder.add(tile, _i64(t))) for t in range(width)]
                    column = builder.mul(tile, _i64(COLUMNS * 4))
                    sums.take(xs, ws, quads, taken, [builder.add(o, column) for o in outs])

            # As many tiles together as there are registers for, then those that are left.
            size = builder.sub(end, begin)
            whole = builder.sub(size, builder.srem(size, _i64(together)))
            middle = builder.add(begin, whole)
            go(begin, middle, together)
            if together > 1:
                go(middle, end, 1)
            return context.get_dummy_value()

        return signature, generate

    return cast("Block", send)


class _Sums:
    """Writes the machine's instructions for a few rows by a few tiles."""

    def __init__(self, processor: Processor, builder: Any) -> None:
        self._builder, self._instruction = builder, processor.instruction
        self._lanes, self._parts = processor.lanes, processor.parts
        self._vectors = COLUMNS // processor.lanes
        self._sums = ir.VectorType(_i32, processor.lanes * processor.parts)

    def take(
        self, xs: Sequence[Any], ws: Sequence[Any], quads: Any, taken: Sequence[Any], outs: Any
    ) -> None:
        """Sum over all quads, and write the sums of each row.

        Args:
            xs: Addresses of rows.
            ws: Addresses of tiles.
            quads: How many.
            taken: What is taken off the sums of each row.
            outs: Addresses of what each row writes, tile behind tile.
        """
        builder, size = self._builder, self._lanes * NEIGHBOURS
        places = [(w, vector) for w in ws for vector in range(self._vectors)]
        zero = ir.Constant(self._sums, None)
        sums = [[cgutils.alloca_once(builder, self._sums) for _ in places] for _ in xs]
        for one in (one for row in sums for one in row):
            builder.store(zero, one)
        with cgutils.for_range(builder, quads) as loop:
            step = builder.mul(loop.index, _i64(NEIGHBOURS))
            quad = [
                self._spread(builder.load(_pointer(builder, builder.add(x, step), _i32), align=1))
                for x in xs
            ]
            for place, (w, vector) in enumerate(places):
                skip = builder.mul(loop.index, _i64(COLUMNS * NEIGHBOURS))
                address = builder.add(builder.add(w, skip), _i64(vector * size))
                taken_up = _pointer(builder, address, ir.VectorType(_i8, size))
                neighbours = builder.load(taken_up, align=1)
                for row, x in zip(sums, quad, strict=True):
                    builder.store(self._add(builder.load(row[place]), neighbours, x), row[place])
        lanes = ir.VectorType(_i32, self._lanes)
        for row, off, out in zip(sums, taken, outs, strict=True):
            for place, one in enumerate(row):
                whole = builder.sub(self._whole(builder.load(one)), _splat(builder, off, lanes))
                address = builder.add(out, _i64(place * self._lanes * 4))
                builder.store(whole, _pointer(builder, address, lanes), align=4)

    def _spread(self, quad: Any) -> Any:
        """Return four bytes of a row as the instruction takes them, for every lane."""
        builder, total = self._builder, self._lanes * NEIGHBOURS
        if self._instruction == VNNI.instruction:
            return _splat(builder, quad, self._sums)
        kind = _i16 if self._instruction == AVX2.instruction else _i32
        wide = builder.sext(
            builder.bitcast(quad, ir.VectorType(_i8, NEIGHBOURS)), ir.VectorType(kind, NEIGHBOURS)
        )
        return _shuffle(builder, wide, [lane % NEIGHBOURS for lane in range(total)])

    def _add(self, sums: Any, neighbours: Any, quad: Any) -> Any:
        """Return the sums with another four neighbours of each column."""
        builder = self._builder
        if self._instruction == VNNI.instruction:
            call = _declared(builder, self._instruction, self._sums, [self._sums] * 3)
            return builder.call(call, [sums, builder.bitcast(neighbours, self._sums), quad])
        wide = builder.zext(neighbours, quad.type)
        if not self._instruction:
            return builder.add(sums, builder.mul(wide, quad))
        half = self._lanes * NEIGHBOURS // 2
        pairs = ir.VectorType(_i32, half // 2)
        call = _declared(builder, self._instruction, pairs, [ir.VectorType(_i16, half)] * 2)
        added = [
            builder.call(call, [_shuffle(builder, one, places) for one in (wide, quad)])
            for places in (range(half), range(half, 2 * half))
        ]
        return builder.add(sums, builder.shuffle_vector(*added, _indices(range(half))))

    def _whole(self, sums: Any) -> Any:
        """Return one sum a lane."""
        parts = self._parts
        while parts > 1:
            length = self._lanes * parts
            sums = self._builder.add(
                _shuffle(self._builder, sums, range(0, length, 2)),
                _shuffle(self._builder, sums, range(1, length, 2)),
            )
            parts //= 2
        return sums


def _declared(builder: Any, name: str, returned: Any, arguments: Sequence[Any]) -> Any:
    kind = ir.FunctionType(returned, arguments)
    return cgutils.get_or_insert_function(builder.module, kind, name)


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _indices(places: Sequence[int]) -> Any:
    return ir.Constant(ir.VectorType(_i32, len(places)), list(places))


def _shuffle(builder: Any, vector: Any, places: Sequence[int]) -> Any:
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), _indices(places))


def _splat(builder: Any, value: Any, kind: Any) -> Any:
    vector = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _i32(0))
    return _shuffle(builder, vector, [0] * kind.count)


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
    offsets = np.empty(count, np.int32)
    for r in range(count):
        total = np.int32(0)
        for k in range(rows.shape[1]):
            total = np.int32(total + np.int32(rows[r, k]))
        offsets[r] = np.int32(ZERO) * total
    for tile in range(0, len(tiles), AT_ONCE):
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
