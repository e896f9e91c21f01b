"""A sum has the bits that its definition says, to the last one."""

import numpy as np
import pytest

from cpu.arrays import Floats
from models.int8.row_sum import LANES, sum_row

RNG = np.random.default_rng(0)


def as_defined(row: Floats) -> np.float32:
    """Add up a row in the order that `models.int8.row_sum` describes, an operation at a time."""
    whole = len(row) // LANES * LANES
    partial = np.zeros(LANES, np.float32)
    for start in range(0, whole, LANES):
        partial = partial + row[start : start + LANES]
    while len(partial) > 1:
        lower, upper = np.split(partial, 2)
        partial = lower + upper
    total = partial[0]
    for entry in row[whole:]:
        total = np.float32(total + entry)
    return np.float32(total)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 31, 64, 100, 640, 1000])
def test_a_sum_has_the_bits_of_its_definition(length: int) -> None:
    row = RNG.standard_normal(length).astype(np.float32)
    assert np.float32(sum_row(row)).tobytes() == as_defined(row).tobytes()


def test_a_sum_does_not_depend_on_where_the_row_lies() -> None:
    row = RNG.standard_normal(200).astype(np.float32)
    shelf = np.empty(264, np.float32)
    sums = set()
    for start in range(64):
        shelf[start : start + 200] = row
        sums.add(float(sum_row(shelf[start : start + 200])))
    assert len(sums) == 1


@pytest.mark.parametrize("broken", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 15, 40])
def test_what_is_no_number_is_not_lost(broken: float, place: int) -> None:
    row = np.ones(41, np.float32)
    row[place] = broken
    assert not np.isfinite(sum_row(row))
