"""The programs of docs/library.md run as they stand there."""

import contextlib
import io

import pytest

from tests.docs.pages import blocks

PROGRAMS = blocks("docs/library.md", "python")


@pytest.mark.parametrize("program", PROGRAMS, ids=["alone", "transformers"])
def test_it_runs(program: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, "docs/library.md", "exec"), {})
    assert "[" in printed.getvalue()


def test_the_first_is_ten_lines_at_most() -> None:
    assert len([line for line in PROGRAMS[0].splitlines() if line]) <= 10
