"""What different processors sum integers of 8 bits with, as LLVM's instructions.

All of them add, for each of some columns, the products of four neighbours: four bytes without a
sign by four with one. Sums of integers are exact, so that all give the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from llvmlite import ir
from numba.core import cgutils
from numba.core.registry import cpu_target

NEIGHBOURS: Final = 4

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32 = ir.FloatType()


class Processor(ABC):
    """How sums are taken.

    Attributes:
        lanes: Columns at once.
        parts: Sums that are kept of a column, to be added at the end.
        rows: How many the registers hold the sums of, for 32 columns.
    """

    def __init__(self, lanes: int, parts: int, rows: int) -> None:
        self.lanes, self.parts, self.rows = lanes, parts, rows
        self.sums = ir.VectorType(I32, lanes * parts)

    @abstractmethod
    def spread(self, builder: Any, quad: Any) -> Any:
        """Return four bytes of a row, an i32, as `add` takes them for every lane."""

    @abstractmethod
    def add(self, builder: Any, sums: Any, neighbours: Any, quad: Any) -> Any:
        """Return sums with another four neighbours of each column.

        Args:
            builder: Writes the instructions.
            sums: Of type ``self.sums``.
            neighbours: ``<4 lanes x i8>`` without signs, those of a column together.
            quad: What `spread` returned.
        """

    def whole(self, builder: Any, sums: Any) -> Any:
        """Return one sum a lane."""
        parts = self.parts
        while parts > 1:
            length = self.lanes * parts
            halves = (shuffle(builder, sums, range(first, length, 2)) for first in (0, 1))
            sums = builder.add(*halves)
            parts //= 2
        return sums


class Vnni(Processor):
    """VPDPBUSD (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2)."""

    def __init__(self, lanes: int, rows: int) -> None:
        super().__init__(lanes, parts=1, rows=rows)
        self._name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"

    def spread(self, builder: Any, quad: Any) -> Any:
        """Repeat the four bytes."""
        return splat(builder, quad, self.sums)

    def add(self, builder: Any, sums: Any, neighbours: Any, quad: Any) -> Any:
        """Take four products and their sum at once."""
        call = _declared(builder, self._name, self.sums, [self.sums] * 3)
        return builder.call(call, [sums, builder.bitcast(neighbours, self.sums), quad])


class Avx2(Processor):
    """PMADDWD, which adds two products of 16 bits."""

    def __init__(self) -> None:
        super().__init__(lanes=8, parts=2, rows=1)

    def spread(self, builder: Any, quad: Any) -> Any:
        """Repeat the four bytes, widened to 16 bits."""
        return _widened(builder, quad, I16, self.lanes)

    def add(self, builder: Any, sums: Any, neighbours: Any, quad: Any) -> Any:
        """Take the lower half of the columns, then the upper one."""
        wide, half = builder.zext(neighbours, quad.type), self.lanes * NEIGHBOURS // 2
        pairs, words = ir.VectorType(I32, half // 2), ir.VectorType(I16, half)
        call = _declared(builder, "llvm.x86.avx2.pmadd.wd", pairs, [words] * 2)
        halves = (range(half), range(half, 2 * half))
        added = [
            builder.call(call, [shuffle(builder, one, places) for one in (wide, quad)])
            for places in halves
        ]
        return builder.add(sums, builder.shuffle_vector(*added, _indices(range(half))))


class Plain(Processor):
    """Multiplication and addition of 32 bits, which every processor has."""

    def __init__(self) -> None:
        super().__init__(lanes=4, parts=4, rows=1)

    def spread(self, builder: Any, quad: Any) -> Any:
        """Repeat the four bytes, widened to 32 bits."""
        return _widened(builder, quad, I32, self.lanes)

    def add(self, builder: Any, sums: Any, neighbours: Any, quad: Any) -> Any:
        """Keep a sum of each neighbour."""
        return builder.add(sums, builder.mul(builder.zext(neighbours, quad.type), quad))


def processors() -> Sequence[Processor]:
    """Return what numba compiles for can do, the best first."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    has = set(features.split(","))
    wide = "+avx512vnni" in has
    narrow = "+avxvnni" in has or (wide and "+avx512vl" in has)
    known = ((wide, Vnni(16, rows=8)), (narrow, Vnni(8, rows=2)), ("+avx2" in has, Avx2()))
    return [*(one for there, one in known if there), Plain()]


def pointer(builder: Any, address: Any, kind: Any) -> Any:
    """Return an address as a pointer to something."""
    return builder.inttoptr(address, kind.as_pointer())


def shuffle(builder: Any, vector: Any, places: Sequence[int]) -> Any:
    """Return the elements of a vector at some places."""
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), _indices(places))


def splat(builder: Any, value: Any, kind: Any) -> Any:
    """Return a vector of one value."""
    vector = builder.insert_element(ir.Constant(kind, ir.Undefined), value, I32(0))
    return shuffle(builder, vector, [0] * kind.count)


def _widened(builder: Any, quad: Any, kind: Any, lanes: int) -> Any:
    """Return four bytes with signs, widened and repeated for every lane."""
    narrow = builder.bitcast(quad, ir.VectorType(I8, NEIGHBOURS))
    wide = builder.sext(narrow, ir.VectorType(kind, NEIGHBOURS))
    return shuffle(builder, wide, list(range(NEIGHBOURS)) * lanes)


def _declared(builder: Any, name: str, returned: Any, arguments: Sequence[Any]) -> Any:
    kind = ir.FunctionType(returned, arguments)
    return cgutils.get_or_insert_function(builder.module, kind, name)


def _indices(places: Sequence[int]) -> Any:
    return ir.Constant(ir.VectorType(I32, len(places)), list(places))
