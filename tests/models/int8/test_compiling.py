"""Machine code is kept from one process to the next, where it can be."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

PROGRAM = """
import numpy as np
from models.int8 import kernels
row, integers = np.array([1.0, -2.0, 0.5], np.float32), np.empty(3, np.int8)
assert kernels.quantize_row(row, integers) == np.float32(2 / 127)
assert integers.tolist() == [64, -127, 32]
print(sum(kernels.quantize_row.stats.cache_hits.values()))
"""


def hits(folder: Path) -> int:
    """Quantize a row in a process of its own; return how often its code was found on disk."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_second_process_finds_what_the_first_compiled(tmp_path: Path) -> None:
    assert [hits(tmp_path), hits(tmp_path)] == [0, 1]
    (version,) = tmp_path.iterdir()
    assert list(version.rglob("*.nbi"))


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same() -> None:
    assert [hits(Path("/proc/self/nowhere")) for _ in range(2)] == [0, 0]
