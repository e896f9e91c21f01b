"""Machine code is kept from one process to the next, where it can be."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow
PROGRAM = """
import logging
import numpy as np
from cpu import first_start
from models.int8 import kernels
logging.basicConfig(level=logging.INFO)
first_start.watch()
row, integers = np.array([1.0, -2.0, 0.5], np.float32), np.empty(3, np.int8)
assert kernels.quantize_row(row, integers) == np.float32(2 / 127)
assert integers.tolist() == [64, -127, 32]
print(sum(kernels.quantize_row.stats.cache_hits.values()))
"""

HOST = """
import json, os, sys
import numpy
from numba.core import config
for line in sys.stdin:
    folder, program = json.loads(line)
    pipes = [os.pipe(), os.pipe()]
    pid = os.fork()
    if not pid:
        for number, (_, end) in enumerate(pipes, start=1):
            os.dup2(end, number)
        os.environ["NUMBA_CACHE_DIR"] = folder
        config.reload_config()
        try:
            exec(program, {})
            sys.stdout.flush()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    for _, end in pipes:
        os.close(end)
    status = os.waitpid(pid, 0)[1]
    texts = [open(end).read() for end, _ in pipes]
    print(json.dumps([status, *texts]), flush=True)
"""
"""Imports numba once, and forks a process for each program."""


class Host:
    """What runs many processes that need numba and nothing of ours."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, folder: Path, program: str) -> tuple[str, str]:
        """Return what a process printed and logged that keeps its machine code in a folder."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(folder), program]), file=self._process.stdin, flush=True)
        status, printed, logged = json.loads(self._process.stdout.readline())
        assert status == 0, logged
        return printed.strip(), logged

    def hits(self, folder: Path, said: str = "") -> int:
        """Return how often the code of a process that must log something was found on disk."""
        found, log = self.run(folder, PROGRAM)
        assert said in log
        return int(found)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    command = [sys.executable, "-c", HOST]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        yield Host(process)


def run(
    folder: Path, *words: str, sources: Path = ROOT, variables: Mapping[str, str] = os.environ
) -> tuple[str, str]:
    """Return what a process printed and logged that keeps its machine code in a folder."""
    environment = {**os.environ, **variables, "NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, *words], cwd=sources, env=environment, capture_output=True, text=True,
        timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def hits(folder: Path, said: str = "", sources: Path = ROOT) -> int:
    """Return how often the code of a process that must log something was found on disk."""
    found, log = run(folder, "-c", PROGRAM, sources=sources)
    assert said in log
    return int(found)


def test_a_second_process_finds_what_the_first_compiled(tmp_path: Path) -> None:
    assert [hits(tmp_path, f"later starts read them from {tmp_path}"), hits(tmp_path)] == [0, 1]
    (version,) = tmp_path.iterdir()
    assert list(version.rglob("*.nbi"))


def test_what_was_built_beside_the_sources_is_found_where_the_cache_is_empty(tmp_path) -> None:
    for package in ("cpu", "models"):
        shutil.copytree(ROOT / package, tmp_path / package)
    assert hits(tmp_path / "built", sources=tmp_path) == 0
    (tmp_path / "built").rename(tmp_path / "kernels")
    assert [hits(tmp_path / "empty", sources=tmp_path) for _ in range(2)] == [1, 1]
    assert [one.name for one in (tmp_path / "empty").iterdir()] == [
        one.name for one in (tmp_path / "kernels").iterdir()
    ]


COMPILED = [
    path
    for folder in ("cpu", "models", "samplers")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if re.search(r"^from cpu.compiling import .*\bkernel\b", path.read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_is_compiled_takes_nothing_that_its_digest_does_not_cover(path: Path) -> None:
    lines = ast.walk(ast.parse(path.read_text("utf-8")))
    taken = [line.module or "" for line in lines if isinstance(line, ast.ImportFrom)]
    own = [name for name in taken if name.partition(".")[0] in {"app", "cpu", "models", "samplers"}]
    assert own
    folders = [(ROOT / name.replace(".", "/")).parents for name in own]
    assert all({path.parent, ROOT / "cpu"} & {*above} for above in folders)


@pytest.mark.parametrize("changed", ["cpu/arrays.py", "models/int8/product.py"])
def test_code_of_changed_sources_is_compiled_anew(kept: Path, tmp_path: Path, changed: str) -> None:
    folder = tmp_path / "kept"
    shutil.copytree(kept, folder)
    for package in ("cpu", "models"):
        shutil.copytree(ROOT / package, tmp_path / package)
    with (tmp_path / changed).open("a", encoding="utf-8") as source:
        source.write("# changed\n")
    assert hits(folder, sources=tmp_path) == 0


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same(host: Host) -> None:
    said = "as every start will: they cannot be kept in"
    for _ in range(2):
        assert host.hits(Path("/proc/self/nowhere"), said) == 0


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for at in range(0, len(content), 97):
        content[at] ^= 0x55
    path.write_bytes(bytes(content))


def one_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def replaced(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.fixture(scope="module")
def kept(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the code that the program keeps."""
    folder = tmp_path_factory.mktemp("kept")
    assert host.hits(folder) == 0
    return folder


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", [truncated, emptied, flipped, one_bit])
def test_damaged_code_is_found_and_compiled_again(
    host: Host, kept: Path, tmp_path: Path, damage: Callable[[Path], None], suffix: str
) -> None:
    folder = tmp_path / "kept"
    shutil.copytree(kept, folder)
    files = sorted(folder.rglob(f"*{suffix}"))
    assert files
    for path in files:
        damage(path)
    assert host.hits(folder, "they are compiled again") == 0
    assert host.hits(folder) == 1


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_where_a_file_of_code_cannot_be_read_or_written_it_is_compiled_and_said(
    host: Host, kept: Path, tmp_path: Path, suffix: str
) -> None:
    folder = tmp_path / "kept"
    shutil.copytree(kept, folder)
    for path in sorted(folder.rglob(f"*{suffix}")):
        replaced(path)
    for _ in range(2):
        assert host.hits(folder, "they cannot be kept") == 0


def test_on_a_full_disk_code_is_compiled_and_said(host: Host, tmp_path: Path) -> None:
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\nimport signal"
    full += "; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    for _ in range(2):
        found, log = host.run(tmp_path, full + PROGRAM)
        assert (found, "they cannot be kept (File too large)" in log) == ("0", True)


PROCESSORS = {
    # With what builds of the libraries for it would compute with, as far as this one can show it.
    "x86-64": ("sse4_2", {
        "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    }),
    "haswell": ("avx2", {
        "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    }),
    "skylake-avx512": ("avx512bw", {}),
}  # fmt: skip
"""What a machine must have to run the code of a processor, and variables of libraries."""


def bits(folder: Path, threads: str = "1", variables: Mapping[str, str] = os.environ) -> str:
    """Return what `kernel_bits` prints with its code kept in a folder."""
    return run(folder, "-m", "tests.cpu.kernel_bits", threads, variables=variables)[0]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with code for this processor, and what it computed when it was just compiled."""
    folder = tmp_path_factory.mktemp("kernels")
    return folder, bits(folder)


@pytest.mark.weights
def test_code_just_compiled_and_kept_compute_and_speak_the_same_on_any_number_of_threads(
    compiled: tuple[Path, str],
) -> None:
    folder, found = compiled
    assert found.endswith(" 5 0")  # golden requests spoken, and in other codes
    assert bits(folder, threads="4") == found


@pytest.mark.weights
@pytest.mark.parametrize("processor", PROCESSORS)
def test_code_for_another_processor_computes_the_same_bits_and_speaks_the_same(
    processor: str, compiled: tuple[Path, str], tmp_path: Path
) -> None:
    (needed, libraries), told = PROCESSORS[processor], Path("/proc/cpuinfo")
    if not told.exists() or needed not in told.read_text("utf-8").split():
        pytest.skip(f"this machine is no {processor}")
    assert bits(tmp_path, variables={"NUMBA_CPU_NAME": processor, **libraries}) == compiled[1]
