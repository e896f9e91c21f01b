"""What pages name in backticks exists: files, modules, tests, and attributes of classes."""

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
    *sorted((ROOT / "weights").glob("**/*.md")),
]
CODE = ("app", "cpu", "deploy", "gpu", "lab", "models", "samplers", "valle_serve")
ROOTS = (*CODE, "scripts", "tests", "docs", "examples", "weights")
PLACEHOLDER = "NAME"
LOGGER = "app.api.gate.access_log"  # of a line of the log; no module
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_FILE = re.compile(rf"(?:(?:{'|'.join(ROOTS)})/[\w./-]*|[\w-]+\.(?:py|js))")
_MODULE = re.compile(rf"(?:{'|'.join((*CODE, 'scripts', 'tests'))})(?:\.\w+)+")
_ATTRIBUTE = re.compile(r"([A-Z]\w*[a-z]\w*)\.([a-z_]\w*)(?:\(.*\))?")
_TEST = re.compile(r"(test_\w+)(\.\.\.)?(?:\[.*\])?")


def spans(page: Path) -> set[str]:
    """Return what stands in backticks on a page, outside of blocks of code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return set(_SPAN.findall(text))


@cache
def files() -> frozenset[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return frozenset(listed.stdout.decode().split("\0")) - {""}


@cache
def names() -> tuple[dict[str, set[str]], dict[str, set[str]], set[str]]:
    """Return attributes by class, names by module, and the functions of tests."""
    attributes: dict[str, set[str]] = defaultdict(set)
    modules: dict[str, set[str]] = {}
    tests: set[str] = set()
    for name in files():
        if not name.endswith(".py"):
            continue
        tree = ast.parse((ROOT / name).read_text("utf-8"))
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        modules[module] = set(_defined(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                attributes[node.name] |= set(_defined(node))
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                tests.add(node.name)
    return attributes, modules, tests


def _defined(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]


def _file_exists(name: str) -> bool:
    if "/" in name:
        return (ROOT / name).exists() or any(held.startswith(name) for held in files())
    return any(held.rpartition("/")[2] == name for held in files())


def _module_exists(name: str) -> bool:
    modules = names()[1]
    above, _, last = name.rpartition(".")
    return name in modules or last in modules.get(above, ())


def _attribute_exists(owner: str, name: str) -> bool:
    attributes = names()[0]
    return owner not in attributes or name in attributes[owner]


def _test_exists(name: str, cut: bool) -> bool:
    tests = names()[2]
    stems = {held.rpartition("/")[2].removesuffix(".py") for held in files()}
    return name in tests | stems or (cut and any(one.startswith(name) for one in tests))


def missing(page: Path) -> list[str]:
    """Return the names of a page that nothing has."""
    found = []
    for span in spans(page):
        if PLACEHOLDER in span or span == LOGGER:
            continue
        if _FILE.fullmatch(span):
            exists = _file_exists(span)
        elif _MODULE.fullmatch(span):
            exists = _module_exists(span)
        elif match := _ATTRIBUTE.fullmatch(span):
            exists = _attribute_exists(*match.groups())
        elif match := _TEST.fullmatch(span):
            exists = _test_exists(match[1], bool(match[2]) or match[1].endswith("_"))
        else:
            exists = True
        if not exists:
            found.append(span)
    return sorted(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_in_backticks_exist(page: Path) -> None:
    assert missing(page) == []


@pytest.mark.parametrize(
    "gone",
    [
        "app/engine/nowhere.py",
        "nowhere.py",
        "app.engine.nowhere",
        "ArSampler.nowhere",
        "test_of_nothing_that_there_is",
    ],
)
def test_a_name_that_is_gone_is_found(gone: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"`{gone}` and `ArSampler.advance` of `samplers/ar/sampler.py`\n", "utf-8")
    assert missing(page) == [gone]
