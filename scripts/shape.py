"""Measures of the product's shape that a reader feels: large classes, names, assignments."""

import ast
import collections
import re
from collections.abc import Iterator, Mapping
from typing import Final

MOST_ATTRIBUTES: Final = 15

DECLARATIONS: Final = frozenset({
    "Settings", "EntropixKnobs", "StepKnobs", "SamplingKnobs", "Health",
})  # fmt: skip
"""Classes whose fields are names on the wire: settings, knobs, the answer of `/health`."""

ALIKE: Final = frozenset({
    # What several modules offer alike
    "RULES", "create_app", "log", "main", "phonemize", "table",
    # A kernel and its reference, or its form for another device
    "ADDITIVE", "RAW", "add_product", "attend", "norm", "project", "sample", "store", "uniform",
})  # fmt: skip
"""Public names that are in two files by design."""

OLD_WORDS: Final = frozenset({
    "doubts", "draw", "drawer", "drawn", "draws", "framing", "garbage", "hypotheses",
    "hypothesis", "naming", "told", "uncollected", "untold",
})  # fmt: skip
"""Words that have a better one in the field; docs/words.md has those that are used."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the names of what a class declares, and of what its methods set."""
    declared = {
        line.target.id
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
    return declared | {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def large_classes(tree: ast.Module) -> dict[str, int]:
    """Return the classes of more than `MOST_ATTRIBUTES`, but for `DECLARATIONS`, with how many."""
    return {
        node.name: count
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and node.name not in DECLARATIONS
        and (count := len(attributes(node))) > MOST_ATTRIBUTES
    }


def parallel_assignments(tree: ast.Module) -> list[int]:
    """Return the lines that give values to several names at once, but for exchanges."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and isinstance(node.targets[0], ast.Tuple)
        and {ast.unparse(each) for each in node.targets[0].elts}
        != {ast.unparse(each) for each in node.value.elts}
    ]


def public_names(tree: ast.Module) -> Iterator[str]:
    """Yield the public names that a module defines, but for `ALIKE`."""
    for node in tree.body:
        names = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [each.id for each in node.targets if isinstance(each, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        for name in names:
            if not name.startswith("_") and name not in ALIKE:
                yield name


def defined_twice(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Return the public names that more than one file defines, each with its files."""
    files: dict[str, set[str]] = collections.defaultdict(set)
    for path, tree in trees.items():
        for name in public_names(tree):
            files[name].add(path)
    return {name: sorted(paths) for name, paths in sorted(files.items()) if len(paths) > 1}


def old_words(tree: ast.Module) -> list[tuple[int, str]]:
    """Return the names that are given to something and have an old word in them, by line."""
    found = list[tuple[int, str]]()
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        if OLD_WORDS & {word.lower() for word in _WORD.findall(name)}:
            found.append((getattr(node, "lineno", 0), name))
    return found
