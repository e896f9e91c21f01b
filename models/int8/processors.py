"""Integer dot products of four bytes for different processors, as LLVM instructions.

Each instruction set adds, for each of several columns, the products of a quad: four unsigned bytes
of the matrix by four signed bytes of the row. Integer sums are exact, so all give the same result.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from llvmlite import ir
from numba.core import cgutils
from numba.core.registry import cpu_target

QUAD: Final = 4

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32 = ir.FloatType()


class Processor(ABC):
    """An instruction set's way of accumulating dot products.

    Attributes:
        lanes: Columns per vector.
        parts: Partial sums kept for a column, to be added at the end.
        rows: Rows whose sums of 32 columns fit into the registers.
        sums: LLVM type of the accumulator, ``<lanes * parts x i32>``.
    """

    def __init__(self, lanes: int, parts: int, rows: int) -> None:
        self.lanes = lanes
        self.parts = parts
        self.rows = rows
        self.sums = ir.VectorType(I32, lanes * parts)

    @abstractmethod
    def broadcast(self, builder: Any, quad: Any) -> Any:
        """Return a quad of the row (an i32) repeated for every lane, in the form `add` takes."""

    @abstractmethod
    def add(self, builder: Any, sums: Any, quads: Any, quad: Any) -> Any:
        """Return the accumulator with the products of one quad of each column added.

        ``quads`` are ``<4 lanes x i8>`` unsigned, one after another; ``quad`` the row's, of
        `broadcast`.
        """

    def reduce(self, builder: Any, sums: Any) -> Any:
        """Return the accumulator with each lane's partial sums added: ``<lanes x i32>``."""
        parts = self.parts
        while parts > 1:
            length = self.lanes * parts
            halves = (shuffle(builder, sums, range(first, length, 2)) for first in (0, 1))
            sums = builder.add(*halves)
            parts //= 2
        return sums


class Vnni(Processor):
    """VPDPBUSD of AVX-512 VNNI or AVX-VNNI (Intel 64 and IA-32 Manual, volume 2)."""

    def __init__(self, lanes: int, rows: int) -> None:
        super().__init__(lanes, parts=1, rows=rows)
        self._name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"

    def broadcast(self, builder: Any, quad: Any) -> Any:
        """Repeat the four bytes."""
        return splat(builder, quad, self.sums)

    def add(self, builder: Any, sums: Any, quads: Any, quad: Any) -> Any:
        """Multiply and add in one instruction."""
        call = _declared(builder, self._name, self.sums, [self.sums] * 3)
        return builder.call(call, [sums, builder.bitcast(quads, self.sums), quad])


class Avx2(Processor):
    """VPMADDWD of AVX2, which adds pairs of products of 16 bits."""

    def __init__(self) -> None:
        super().__init__(lanes=8, parts=2, rows=1)

    def broadcast(self, builder: Any, quad: Any) -> Any:
        """Repeat the four bytes, widened to 16 bits."""
        return _widened(builder, quad, I16, self.lanes)

    def add(self, builder: Any, sums: Any, quads: Any, quad: Any) -> Any:
        """Multiply the lower half of the columns, then the upper half."""
        wide = builder.zext(quads, quad.type)
        half = self.lanes * QUAD // 2
        pairs = ir.VectorType(I32, half // 2)
        words = ir.VectorType(I16, half)
        call = _declared(builder, "llvm.x86.avx2.pmadd.wd", pairs, [words] * 2)
        halves = (range(half), range(half, 2 * half))
        added = [
            builder.call(call, [shuffle(builder, one, places) for one in (wide, quad)])
            for places in halves
        ]
        return builder.add(sums, builder.shuffle_vector(*added, _indices(range(half))))


class Plain(Processor):
    """Multiplication and addition of 32 bits, for every other processor."""

    def __init__(self) -> None:
        super().__init__(lanes=4, parts=4, rows=1)

    def broadcast(self, builder: Any, quad: Any) -> Any:
        """Repeat the four bytes, widened to 32 bits."""
        return _widened(builder, quad, I32, self.lanes)

    def add(self, builder: Any, sums: Any, quads: Any, quad: Any) -> Any:
        """Keep a partial sum of each byte of the quad."""
        return builder.add(sums, builder.mul(builder.zext(quads, quad.type), quad))


def processors() -> Sequence[Processor]:
    """Return the instruction sets of the processor that numba compiles for, best first."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    has = set(features.split(","))
    avx512_vnni = "+avx512vnni" in has
    avx_vnni = "+avxvnni" in has or (avx512_vnni and "+avx512vl" in has)
    known = (
        (avx512_vnni, Vnni(16, rows=8)),
        (avx_vnni, Vnni(8, rows=2)),
        ("+avx2" in has, Avx2()),
    )
    return [*(processor for available, processor in known if available), Plain()]


def pointer(builder: Any, address: Any, kind: Any) -> Any:
    """Return an integer address as a pointer to a type."""
    return builder.inttoptr(address, kind.as_pointer())


def shuffle(builder: Any, vector: Any, indices: Sequence[int]) -> Any:
    """Return a vector of another vector's elements at the given indices."""
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), _indices(indices))


def splat(builder: Any, value: Any, kind: Any) -> Any:
    """Return a vector with one value in every lane."""
    vector = builder.insert_element(ir.Constant(kind, ir.Undefined), value, I32(0))
    return shuffle(builder, vector, [0] * kind.count)


def _widened(builder: Any, quad: Any, kind: Any, lanes: int) -> Any:
    """Return four signed bytes (an i32) widened to a type and repeated for every lane."""
    narrow = builder.bitcast(quad, ir.VectorType(I8, QUAD))
    wide = builder.sext(narrow, ir.VectorType(kind, QUAD))
    return shuffle(builder, wide, list(range(QUAD)) * lanes)


def _declared(builder: Any, name: str, returned: Any, arguments: Sequence[Any]) -> Any:
    kind = ir.FunctionType(returned, arguments)
    return cgutils.get_or_insert_function(builder.module, kind, name)


def _indices(places: Sequence[int]) -> Any:
    return ir.Constant(ir.VectorType(I32, len(places)), list(places))
