"""What every test starts from: no setting of the developer's shell, one thread, golden data."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
import uvicorn.server
from hypothesis import settings

from app.engine.backend import self_check
from tests.fixtures import sorted_as_on_a_gpu, without_gradients
from tests.toy.make_toy import make

__all__ = ["sorted_as_on_a_gpu", "without_gradients"]

# A loaded machine is no failure: no example has a deadline, in any test.
settings.register_profile("valle-serve", deadline=None)
settings.load_profile("valle-serve")

# Triton reads it when it is first imported, which any test's module may do while all are collected.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
    with suppress(ImportError):
        from tests.gpu.interpreter import hasten

        hasten()

ROOT = Path(__file__).resolve().parents[1]
KEPT = {"TTS_GOLDEN", "TTS_TEXT_PROCESS", "TTS_VOICE_PROCESS"}
"""Where the golden data lies, which is no setting of the service, and what `_one_process` sets."""

WORKER_BYTES = 3 * 1024**3
"""Memory that a process of the tests may need."""


def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes the tests are run in: one a core, where memory allows."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, int(psutil.virtual_memory().available) // WORKER_BYTES))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files first that have slow tests: a core would idle beside one that is last."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True, scope="session")
def _one_process() -> None:
    """Compute on one thread as a worker of the service does, for the same bits everywhere.

    Texts are read and the sound is made in this process too: others take long to start. Tests of
    them ask for them.
    """
    torch.set_num_threads(1)
    os.environ["TTS_TEXT_PROCESS"] = os.environ["TTS_VOICE_PROCESS"] = "0"
    self_check.MEASURED_S = 0.01  # one take: the suite starts the service often
    # uvicorn looks every tenth of a second whether to end, and then waits as long once more.
    hasty = {"sleep": lambda delay_s: asyncio.sleep(delay_s / 10)}
    pytest.MonkeyPatch().setattr(
        uvicorn.server, "asyncio", SimpleNamespace(**vars(asyncio) | hasty)
    )


@pytest.fixture(autouse=True)
def _clean_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the ``TTS_*`` variables that the developer's shell sets."""
    for name in list(os.environ):
        if name.startswith("TTS_") and name not in KEPT:
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the toy model."""
    return make(tmp_path_factory.mktemp("models") / "toy")


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Path:
    """The folder of reference data: what ``TTS_GOLDEN`` names, else ``../shared/golden``.

    Where there is neither, the copies in ``tests/golden``: what was computed from formulas, and so
    may be copied. A test of anything else is skipped there.
    """
    named = os.environ.get("TTS_GOLDEN")
    folder = Path(named) if named else ROOT.parent / "shared" / "golden"
    if folder.is_dir():
        return folder
    if named:
        pytest.fail(f"TTS_GOLDEN names {named}, which is not a folder")
    return ROOT / "tests" / "golden"


def golden_part(golden: Path, name: str) -> Path:
    """Return a folder of the reference data; a test that asks is skipped where it is not."""
    folder = golden / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing: TTS_GOLDEN may name a golden folder that has it")
    return folder


@pytest.fixture(scope="session")
def golden_valle(golden: Path) -> Path:
    """What the reference code made of random checkpoints; nothing of it may be copied here."""
    return golden_part(golden, "valle")
