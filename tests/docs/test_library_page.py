"""The programs of docs/library.md run as they stand there."""

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.pages import blocks

PROGRAMS = blocks("docs/library.md", "python")
SCRIPTS = blocks("docs/library.md", "sh")


@pytest.mark.parametrize("program", PROGRAMS, ids=["speaker", "samplers", "transformers"])
def test_every_program_of_the_library_page_runs_and_prints(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, "docs/library.md", "exec"), {})
    assert "[" in printed.getvalue()


def test_that_of_the_samplers_is_ten_lines_at_most() -> None:
    assert len([line for line in PROGRAMS[1].splitlines() if line]) <= 10


@pytest.mark.slow
def test_an_older_version_of_transformers_passes_the_tests(tmp_path: Path) -> None:
    (script,) = (one for one in SCRIPTS if "transformers==" in one)
    script = script.replace("/tmp/transformers-4.57", str(tmp_path / "transformers"))
    script = script.replace(".venv/bin/pip", "python -m pip").replace(".venv/bin/python", "python")
    script = script.replace("python -m", f"{sys.executable} -m")
    done = subprocess.run(
        ["bash", "-e"], cwd=ROOT, input=script, capture_output=True, text=True, timeout=290
    )
    assert done.returncode == 0, done.stdout + done.stderr
