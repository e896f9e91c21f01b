"""docs/architecture.md names files, modules and packages that exist, and every package there is."""

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
ROOTS = ("app", "cpu", "deploy", "gpu", "lab", "models", "samplers", "valle_serve")
PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for root in ROOTS
    for path in (ROOT / root).rglob("__init__.py")
)
DESCRIBED = [name for name in PACKAGES if re.match(r"app(\.(api|audio|commands)\b|$)", name)]
MAP = PAGE.partition("\n## Packages\n")[2].partition("\n## ")[0]

DOTTED = set(re.findall(rf"\b((?:{'|'.join(ROOTS)})(?:\.\w+)+)(?!\w|/)", PAGE))
NAMED = {
    *(name.replace(".", "/") for name in DOTTED),
    *re.findall(r"`((?:\w+/)+[\w.-]*|\w+\.toml)`", PAGE),
    *re.findall(r"\b((?:\w+/)+\w+\.py)\b", PAGE),
}
PLACES = [ROOT, ROOT / "app", ROOT / "app" / "engine"]  # a picture leaves out the first folders


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_on_the_map(package: str) -> None:
    assert f"`{package}`" in MAP


def test_the_page_fits_on_three_screens() -> None:
    assert len(PAGE.splitlines()) <= 150


@pytest.mark.parametrize("name", sorted(NAMED))
def test_modules_files_and_folders_exist(name: str) -> None:
    assert any((place / f"{name}{end}").exists() for place in PLACES for end in ("", ".py"))


@pytest.mark.parametrize("package", DESCRIBED)
def test_a_package_says_what_it_owns_and_what_it_does_not_know(package: str) -> None:
    source = ROOT / Path(*package.split(".")) / "__init__.py"
    docstring = ast.get_docstring(ast.parse(source.read_text("utf-8")))
    assert docstring is not None
    assert "does not know" in " ".join(docstring.lower().split())
