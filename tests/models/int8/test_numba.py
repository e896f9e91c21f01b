"""The installed numba and llvmlite are in the tested range and have the internals that we use."""

import re
import tomllib
from importlib.metadata import version
from typing import Any

import numba
import pytest
from numba.core import event
from numba.core.registry import cpu_target
from packaging.requirements import Requirement

from tests.conftest import ROOT

PACKAGES = ("numba", "llvmlite")


def declared_ranges() -> dict[str, Requirement]:
    """The ranges that pyproject.toml declares."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    requirements = map(Requirement, dependencies)
    return {found.name: found for found in requirements if found.name in PACKAGES}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_installed_version_is_in_the_tested_range(package: str) -> None:
    requirement = declared_ranges()[package]
    bounds = {specifier.operator for specifier in requirement.specifier}
    assert bounds == {">=", "<"}, f"{package} needs a lower and an upper bound in pyproject.toml"
    assert requirement.specifier.contains(version(package)), (
        f"{package} {version(package)} is outside the tested range {requirement.specifier}:"
        " run tests/models/int8 and the golden requests with it, then widen pyproject.toml"
    )


def test_a_function_can_be_cached_in_a_folder_of_our_choice() -> None:
    compiled: Any = numba.njit(_twice)
    assert callable(compiled.enable_caching), "models.int8.compiling.kernel needs it"
    assert hasattr(numba.core.config, "CACHE_DIR"), "models.int8.compiling.kernel sets it"


def test_the_features_of_the_processor_are_told_as_llvm_names_them() -> None:
    target = cpu_target.target_context.codegen().magic_tuple()
    assert len(target) == 3, "models.int8.processors.processors reads the third of three"
    features = target[2].split(",")
    assert all(re.fullmatch(r"[+-][\w.-]+", feature) for feature in features if feature)


def test_a_compilation_is_announced() -> None:
    class Counter(event.Listener):
        begun = ended = 0

        def on_start(self, _: object) -> None:
            self.begun += 1

        def on_end(self, _: object) -> None:
            self.ended += 1

    counter = Counter()
    event.register("numba:compile", counter)
    try:
        compiled: Any = numba.njit(_twice)
        assert compiled(2) == 4
    finally:
        event.unregister("numba:compile", counter)
    assert counter.begun == counter.ended >= 1, "models.int8.first_start counts these"


def _twice(number: int) -> int:
    return 2 * number
