"""Machine code is kept from one process to the next, where it can be."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PROGRAM = """
import logging
import numpy as np
from models.int8 import first_start, kernels
logging.basicConfig(level=logging.INFO)
first_start.watch()
row, integers = np.array([1.0, -2.0, 0.5], np.float32), np.empty(3, np.int8)
assert kernels.quantize_row(row, integers) == np.float32(2 / 127)
assert integers.tolist() == [64, -127, 32]
print(sum(kernels.quantize_row.stats.cache_hits.values()))
"""


def hits(folder: Path, said: str = "", sources: Path = ROOT) -> int:
    """Quantize a row in a process of its own; return how often its code was found on disk.

    Args:
        folder: Where it is kept.
        said: What the process must log.
        sources: Where the package is.
    """
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=sources, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stderr
    return int(done.stdout)


def test_a_second_process_finds_what_the_first_compiled(tmp_path: Path) -> None:
    assert [hits(tmp_path, f"later starts read them from {tmp_path}"), hits(tmp_path)] == [0, 1]
    (version,) = tmp_path.iterdir()
    assert list(version.rglob("*.nbi"))


def test_what_was_built_beside_the_sources_is_found_where_the_cache_is_empty(tmp_path) -> None:
    for package in ("models", "samplers"):
        shutil.copytree(ROOT / package, tmp_path / package)
    assert hits(tmp_path / "built", sources=tmp_path) == 0
    (tmp_path / "built").rename(tmp_path / "kernels")
    assert [hits(tmp_path / "empty", sources=tmp_path) for _ in range(2)] == [1, 1]
    assert [one.name for one in (tmp_path / "empty").iterdir()] == [
        one.name for one in (tmp_path / "kernels").iterdir()
    ]


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same() -> None:
    for _ in range(2):
        assert hits(Path("/proc/self/nowhere"), "as every start will: they cannot be kept in") == 0


def bits(folder: Path, processor: str = "") -> str:
    """Return the hash that `kernel_bits` prints with its code kept in a folder."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder), "NUMBA_CPU_NAME": processor}
    if not processor:
        del environment["NUMBA_CPU_NAME"]
    command = [sys.executable, "-m", "tests.models.int8.kernel_bits"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with code for this processor, and what it computed when it was just compiled."""
    folder = tmp_path_factory.mktemp("kernels")
    return folder, bits(folder)


@pytest.mark.slow
def test_code_just_compiled_and_code_that_was_kept_compute_the_same_bits(compiled) -> None:
    folder, found = compiled
    assert bits(folder) == found


@pytest.mark.slow
@pytest.mark.parametrize("processor", ["x86-64", "nehalem", "haswell", "skylake-avx512"])
def test_code_for_another_processor_computes_the_same_bits(
    processor: str, compiled: tuple[Path, str], tmp_path: Path
) -> None:
    if not runs_here(processor):
        pytest.skip(f"this machine is no {processor}")
    assert bits(tmp_path, processor) == compiled[1]


def runs_here(processor: str) -> bool:
    """Whether this machine has the instructions of a processor that the test above names."""
    if platform.machine() != "x86_64":
        return False
    needed = {"haswell": "avx2", "skylake-avx512": "avx512bw"}.get(processor, "sse2")
    return needed in Path("/proc/cpuinfo").read_text("utf-8").split()
