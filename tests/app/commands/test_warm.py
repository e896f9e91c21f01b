"""`valle-serve warm` compiles what a start needs, also where the weights are float32."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.toy.make_toy import make

pytestmark = pytest.mark.slow


def warm(model: Path, folder: Path) -> str:
    """Return what the command prints that keeps its machine code in a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "app", "warm"], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {
            "NUMBA_CACHE_DIR": str(folder), "TTS_MODEL": str(model), "TTS_WEIGHTS": "float32",
        },
        timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_function_that_samples_is_compiled_once_and_kept(tmp_path: Path) -> None:
    model, folder = make(tmp_path / "model"), tmp_path / "kept"
    assert not warm(model, folder).startswith("0 functions")
    assert [*folder.rglob("*sample_rows*.nbi")]
    assert warm(model, folder).startswith("0 functions were compiled")
