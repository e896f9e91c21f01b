"""Products of integers are exact on every kind of processor."""

import os
import subprocess
import sys
from typing import Any

import numba
import numpy as np
import pytest

from cpu.arrays import Int8s, Int32s, Uint8s
from models.int8.processors import Avx2, Processor, processors
from models.int8.product import COLUMNS, TILES_AT_ONCE, multiply, pack, row_kernel
from tests.conftest import ROOT

RNG = np.random.default_rng(0)


def integers(*shape: int) -> Int8s:
    return RNG.integers(-128, 128, shape, np.int8)


def expected(rows: Int8s, matrix: Int8s) -> Int32s:
    product: Int32s = rows.astype(np.int32) @ matrix.astype(np.int32)
    return product


@pytest.mark.parametrize("rows", [*range(1, 18), 100])
@pytest.mark.parametrize("columns", [1, 32, 33, 97, 160, 257])
def test_a_product_is_exact_for_any_number_of_rows_and_columns(rows: int, columns: int) -> None:
    x, matrix = integers(rows, 28), integers(28, columns)
    tiles = pack(matrix)
    out = np.empty((rows, len(tiles) * COLUMNS), np.int32)
    multiply(x, tiles, out)
    np.testing.assert_array_equal(out[:, :columns], expected(x, matrix))
    assert not out[:, columns:].any()


def test_the_greatest_numbers_do_not_overflow() -> None:
    x, matrix = np.full((1, 4096), -128, np.int8), np.full((4096, 1), -128, np.int8)
    out = np.empty((1, COLUMNS), np.int32)
    multiply(x, pack(matrix), out)
    assert out[0, 0] == 4096 * 128 * 128


def test_rows_and_results_may_be_parts_of_something() -> None:
    x, matrix = integers(9, 64)[::2, 8:40], integers(32, 64)
    out = np.zeros((5, 100), np.int32)
    multiply(x, pack(matrix), out[:, 10:74])
    np.testing.assert_array_equal(out[:, 10:74], expected(x, matrix))
    assert not out[:, :10].any()
    assert not out[:, 74:].any()


def test_a_matrix_is_laid_with_zeros_behind_it() -> None:
    tiles = pack(integers(5, 33))
    assert tiles.shape == (2, 2, COLUMNS, 4)
    assert (tiles[1, :, 1:] == 128).all()
    assert (tiles[:, 1, :, 1:] == 128).all()


@pytest.mark.parametrize(
    "processor", processors(), ids=lambda one: f"{type(one).__name__} {one.lanes}"
)
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_every_instruction_gives_the_same(processor: Processor, count: int) -> None:
    send = row_kernel(processor, count)

    def product(rows: Int8s, tiles: Uint8s, offsets: Int32s, out: Int32s) -> None:
        for tile in range(0, len(tiles), TILES_AT_ONCE):
            send(rows, 0, tiles, tile, offsets, out)

    x, matrix = integers(count, 64), integers(64, 7 * COLUMNS)
    out = np.empty((count, 7 * COLUMNS), np.int32)
    compiled: Any = numba.njit(product)
    compiled(x, pack(matrix), 128 * x.sum(1, dtype=np.int32), out)
    np.testing.assert_array_equal(out, expected(x, matrix))


PROGRAM = """
import numpy as np
from models.int8.processors import processors
from models.int8.product import multiply, pack
x, matrix = np.full((3, 8), -3, np.int8), np.full((8, 32), 5, np.int8)
out = np.empty((3, 32), np.int32)
multiply(x, pack(matrix), out)
assert (out == -120).all()
print([type(one).__name__ for one in processors()])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("features", "known"), [("", ["Plain"]), ("+avx2", ["Avx2", "Plain"])])
def test_nothing_is_used_that_numba_was_told_to_leave(features: str, known: list[str]) -> None:
    if "Avx2" in known and not any(isinstance(one, Avx2) for one in processors()):
        pytest.skip("needs AVX2")
    environment = os.environ | {"NUMBA_CPU_FEATURES": features, "NUMBA_CPU_NAME": "generic"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(known)
