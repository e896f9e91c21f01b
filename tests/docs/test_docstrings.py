"""Docstrings list parameters and attributes that there are."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

FOLDERS = ("app", "cpu", "deploy", "gpu", "lab", "models", "samplers", "valle_serve")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def listed(node: ast.AST, section: str) -> set[str]:
    """Return the names that a section of a docstring has an entry for."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return set()
    docstring = ast.get_docstring(node) or ""
    _, _, behind = docstring.partition(f"{section}:\n")
    entries, _, _ = behind.partition("\n\n")
    found = re.findall(r"^    (\w+(?:, \w+)*):", entries, re.MULTILINE)
    return {name for entry in found for name in entry.split(", ")}


def parameters(node: ast.AST) -> set[str]:
    return {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}


def attributes(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        match one:
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.FunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case _:
                pass


def stale(source: str) -> list[str]:
    """Return what docstrings of a module list that is not there."""
    found = list[str]()
    if "Args:" not in source and "Attributes:" not in source:
        return found
    for node in ast.walk(ast.parse(source)):
        in_args = listed(node, "Args")
        in_attributes = listed(node, "Attributes")
        if not in_args and not in_attributes:
            continue
        known = {*attributes(node)} if isinstance(node, ast.ClassDef) else set[str]()
        found += in_args - known - parameters(node)
        found += in_attributes - known - parameters(node)
    return found


def test_a_renamed_parameter_or_attribute_is_found() -> None:
    source = '''
class A:
    """One.

    Attributes:
        old: What it has.
    """

    def __init__(self) -> None:
        self.new = 1

    def f(self, new: int) -> None:
        """Do.

        Args:
            old: What it is given.
            new: What it is given, too.
        """
'''
    assert stale(source) == ["old", "old"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_a_docstring_lists_is_there(folder: str) -> None:
    files = [path for path in FILES if path.is_relative_to(ROOT / folder)]
    found = {str(path.relative_to(ROOT)): names for path in files if (names := of_file(path))}
    assert not found


def of_file(path: Path) -> list[str]:
    return stale(path.read_text("utf-8"))
