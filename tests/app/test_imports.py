"""Imports without collections of garbage."""

import gc
import subprocess
import sys
from contextlib import suppress

import pytest

from app.imports import uncollected


@pytest.fixture(autouse=True)
def unfrozen():
    yield
    gc.unfreeze()


@pytest.mark.parametrize("enabled", [True, False])
def test_within_nothing_is_collected_and_after_it_all_is_as_before(enabled) -> None:
    if not enabled:
        gc.disable()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
        with suppress(ImportError), uncollected():
            raise ImportError
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_what_was_made_is_left_out_of_collections() -> None:
    before = gc.get_freeze_count()
    with uncollected():
        made: list[list[int]] = [[] for _ in range(1000)]
    assert gc.get_freeze_count() >= before + len(made)


def test_it_loads_nothing() -> None:
    code = "import sys; n = len(sys.modules); import app.imports; print(*list(sys.modules)[n:])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in told.stdout.split()}
    assert loaded <= {"app"} | set(sys.stdlib_module_names)
