"""The programs of docs/library.md run as they stand there."""

import contextlib
import io
from pathlib import Path

import pytest

from tests.docs.pages import blocks

PROGRAMS = blocks("docs/library.md", "python")


@pytest.mark.parametrize("program", PROGRAMS, ids=["speaker", "samplers", "transformers"])
def test_it_runs(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, "docs/library.md", "exec"), {})
    assert "[" in printed.getvalue()


def test_that_of_the_samplers_is_ten_lines_at_most() -> None:
    assert len([line for line in PROGRAMS[1].splitlines() if line]) <= 10
