"""The installed numba and llvmlite are in the tested range."""

import tomllib
from importlib.metadata import version

import pytest
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
