"""The installed numba and llvmlite are in the tested range and have the internals that we use."""

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import llvmlite.ir
import numba
import pytest
from numba.core import event
from numba.core.base import BaseContext
from numba.core.registry import cpu_target
from packaging.requirements import Requirement

from tests.conftest import ROOT

PACKAGES = ("numba", "llvmlite")
OBJECTS = {"builder": llvmlite.ir.IRBuilder, "context": BaseContext}
"""Classes of the parameters that numba hands to an intrinsic, by the name they have in our code."""


def declared_ranges() -> dict[str, Requirement]:
    """The ranges that pyproject.toml declares."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    requirements = map(Requirement, dependencies)
    return {found.name: found for found in requirements if found.name in PACKAGES}


def used() -> Iterator[tuple[str, str]]:
    """Yield each module and name, or object and method, of numba and llvmlite that int8 uses."""
    for path in sorted((ROOT / "models" / "int8").glob("*.py")):
        tree = ast.parse(path.read_text())
        modules: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and _ours(node.module):
                for alias in node.names:
                    yield node.module, alias.name
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Import):
                modules |= {alias.name: alias.name for alias in node.names if _ours(alias.name)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                owner = node.value.id
                if owner in OBJECTS or owner in modules:
                    yield modules.get(owner, owner), node.attr


def _ours(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def has(owner: str, name: str) -> bool:
    """Whether a module, an object in a module or a class of `OBJECTS` has an attribute."""
    if owner in OBJECTS:
        return hasattr(OBJECTS[owner], name)
    found: object
    try:
        found = importlib.import_module(owner)
    except ImportError:
        module, _, attribute = owner.rpartition(".")
        found = getattr(importlib.import_module(module), attribute, None)
    if hasattr(found, name):
        return True
    try:
        importlib.import_module(f"{owner}.{name}")
    except ImportError:
        return False
    return True


@pytest.mark.parametrize("package", PACKAGES)
def test_the_installed_version_is_in_the_tested_range(package: str) -> None:
    requirement = declared_ranges()[package]
    bounds = {specifier.operator for specifier in requirement.specifier}
    assert bounds == {">=", "<"}, f"{package} needs a lower and an upper bound in pyproject.toml"
    assert requirement.specifier.contains(version(package)), (
        f"{package} {version(package)} is outside the tested range {requirement.specifier}:"
        " run tests/models/int8 and the golden requests with it, then widen pyproject.toml"
    )


@pytest.mark.parametrize(("owner", "name"), sorted(set(used())))
def test_what_int8_uses_of_numba_exists(owner: str, name: str) -> None:
    assert has(owner, name), (
        f"numba {numba.__version__} with llvmlite {llvmlite.__version__} has no {owner}.{name},"
        " which models/int8 uses"
    )


def test_the_list_of_what_is_used_is_not_empty() -> None:
    found = set(used())
    assert ("numba.core.cgutils", "for_range_slice") in found
    assert ("builder", "shuffle_vector") in found
    assert ("context", "get_dummy_value") in found
    assert not has("builder", "no_such_instruction")
    assert not has("numba.core.cgutils", "no_such_function")


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
