"""The benchmark of products compares equal ones, over every matrix of a stack."""

from benchmarks.model.products import measure, shapes


def test_a_pass_goes_through_four_matrices_a_layer(toy) -> None:
    of = shapes(toy)
    assert of == [(16, 32), (16, 16), (16, 64), (32, 16)] * 2


def test_every_row_of_the_table_has_times() -> None:
    row = measure([(16, 40), (40, 16)], 3, rounds=2)
    assert row["rows"] == 3
    assert all(row[name] > 0 for name in ("ours, us", "torch, us", "torch over ours"))
