"""Imports without collections of garbage, and what modules do not load."""

import gc
import subprocess
import sys
from contextlib import suppress

import pytest

from app.imports import gc_paused


@pytest.fixture(autouse=True)
def unfrozen():
    yield
    gc.unfreeze()


@pytest.mark.parametrize("enabled", [True, False])
def test_within_nothing_is_collected_and_after_it_all_is_as_before(enabled) -> None:
    if not enabled:
        gc.disable()
    try:
        with gc_paused():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
        with suppress(ImportError), gc_paused():
            raise ImportError
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_what_was_made_is_left_out_of_collections() -> None:
    before = gc.get_freeze_count()
    with gc_paused():
        made: list[list[int]] = [[] for _ in range(1000)]
    assert gc.get_freeze_count() >= before + len(made)


LIGHT = [
    *((module, {"torch"}) for module in (
        "app.settings", "app.api.schemas", "app.cli", "app.commands.serve", "app.engine.core",
        "app.storage.preset_files", "samplers.knobs.resolve",
    )),
    ("models.valle", {"numba", "llvmlite", "models.int8"}),
    pytest.param(
        "app.main", {"redis", "ray", "obstore", "app.storage.shared_state"}, marks=pytest.mark.slow
    ),
]  # fmt: skip


@pytest.mark.parametrize(("module", "unwanted"), LIGHT)
def test_a_module_does_not_load_what_it_does_not_need(module, unwanted) -> None:
    code = f"import sys, {module}; print({unwanted} & {{*sys.modules}})"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"


def test_importing_lazily_loads_nothing_beyond_the_standard_library() -> None:
    code = "import sys; n = len(sys.modules); import app.imports; print(*list(sys.modules)[n:])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in told.stdout.split()}
    assert loaded <= {"app"} | set(sys.stdlib_module_names)
