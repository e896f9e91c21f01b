"""docs/architecture.md names files, modules and packages that exist, and every package there is."""

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
ROOTS = ("app", "models", "samplers", "training", "benchmarks", "cluster", "tools", "valle_serve")
PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for root in ROOTS
    for path in (ROOT / root).rglob("__init__.py")
)
DESCRIBED = [name for name in PACKAGES if re.match(r"app(\.(api|audio|commands)\b|$)", name)]
MAP = PAGE.partition("\n## Packages\n")[2].partition("\n## ")[0]

DOTTED = sorted(set(re.findall(rf"\b((?:{'|'.join(ROOTS)})(?:\.\w+)+)(?!\w|/)", PAGE)))
PATHS = sorted(set(re.findall(r"`((?:\w+/)+[\w.-]*|\w+\.toml)`", PAGE)))
SHORT_PATHS = sorted(set(re.findall(r"\b((?:\w+/)+\w+\.py)\b", PAGE)))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_on_the_map(package: str) -> None:
    assert f"`{package}`" in MAP


def test_the_page_fits_on_three_screens() -> None:
    assert len(PAGE.splitlines()) <= 135


@pytest.mark.parametrize("name", DOTTED)
def test_modules_exist(name: str) -> None:
    path = ROOT / name.replace(".", "/")
    assert path.is_dir() or path.with_suffix(".py").is_file()


@pytest.mark.parametrize("name", PATHS)
def test_files_and_folders_exist(name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize("name", SHORT_PATHS)
def test_files_of_pictures_exist(name: str) -> None:
    """A picture leaves out the first folders of a path."""
    places = [ROOT, ROOT / "app", ROOT / "app" / "engine"]
    assert any((place / name).is_file() for place in places)


@pytest.mark.parametrize("package", DESCRIBED)
def test_a_package_says_what_it_owns_and_what_it_does_not_know(package: str) -> None:
    source = ROOT / Path(*package.split(".")) / "__init__.py"
    docstring = ast.get_docstring(ast.parse(source.read_text("utf-8")))
    assert docstring is not None
    assert "does not know" in " ".join(docstring.lower().split())
