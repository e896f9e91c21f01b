"""Seed small faults into the product, one at a time, and list which of them the tests catch.

The places are drawn by a fixed seed, `PER_PACKAGE` in each of `PACKAGES`. A fault is tried on the
tests that execute its line, which a run with `pytest-cov` tells, and on those that mirror its
package where none does: what a child process executes is not seen. Without such a run it is tried
on the tests that mirror its package, then, if those pass, on all. It is written into a copy of the
checkout, never into the checkout itself.

Usage: python -m scripts.mutate [--seed 1] [--json mutations.json] [--only app/api ...]

    pip install pytest-cov
    export PYTEST_ADDOPTS="--cov-context=test --cov-report="
    PYTEST_ADDOPTS+=" --cov=app --cov=gpu --cov=models --cov=samplers"
    scripts/test
    python -m scripts.mutate --coverage .coverage
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from coverage import CoverageData

PACKAGES = (
    "app/api",
    "app/audio",
    "app/commands",
    "app/engine",
    "app/storage",
    "models/checkpoints",
    "models/codecs",
    "models/stack",
    "models/text",
    "samplers/ar",
    "samplers/ops",
    "samplers/processors",
)
PER_PACKAGE = 5
LIMIT_S = 1800  # of one run of tests; a fault that makes them hang is caught

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}


@dataclass(frozen=True)
class Mutation:
    """A fault."""

    path: str  # the file, relative to the checkout
    line: int  # its first line, from 1
    before: str  # the source of the expression
    after: str  # what is written in its place
    caught_by: str = ""  # `executing`, `mirror`, `all` or, if no test fails, an empty string


def changed(node: ast.expr) -> ast.expr | None:
    """Return an expression with a fault in it; None if there is none to make."""
    match node:
        case ast.Compare(ops=[one]) if type(one) in _COMPARED:
            return ast.Compare(node.left, [_COMPARED[type(one)]()], node.comparators)
        case ast.BinOp(op=one) if type(one) in _COMPUTED:
            return ast.BinOp(node.left, _COMPUTED[type(one)](), node.right)
        case ast.BoolOp(op=ast.And()):
            return ast.BoolOp(ast.Or(), node.values)
        case ast.BoolOp(op=ast.Or()):
            return ast.BoolOp(ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case ast.Constant(value=int(value)):
            return ast.Constant(value + 1)
        case ast.IfExp():
            return ast.IfExp(node.test, node.orelse, node.body)
        case _:
            return None


def candidates(path: Path) -> Iterator[ast.expr]:
    """Yield the expressions of a file in which a fault can be seeded, annotations left out."""
    tree = ast.parse(path.read_text())
    skipped: set[int] = set()
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if (annotation := getattr(node, field, None)) is not None:
                skipped.update(map(id, ast.walk(annotation)))
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and id(node) not in skipped and changed(node) is not None:
            yield node


def draw(root: Path, package: str, count: int, seed: int) -> list[tuple[Mutation, str]]:
    """Return some faults of a package, and the file's source with each of them."""
    places = [
        (path, node) for path in sorted((root / package).rglob("*.py")) for node in candidates(path)
    ]
    chosen = random.Random(f"{seed}:{package}").sample(places, count)
    return [_seeded(root, path, node) for path, node in chosen]


def _seeded(root: Path, path: Path, node: ast.expr) -> tuple[Mutation, str]:
    source = path.read_text()
    lines = source.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: (node.end_lineno or 0) - 1])) + (node.end_col_offset or 0)
    other = changed(node)
    assert other is not None
    before, after = ast.unparse(node), f"({ast.unparse(other)})"
    encoded = source.encode()
    text = (encoded[:start] + after.encode() + encoded[end:]).decode()
    return Mutation(str(path.relative_to(root)), node.lineno, before, after), text


def executing(coverage: CoverageData, mutation: Mutation) -> list[str]:
    """Return the tests that execute the line of a fault, or the nearest above that is executed."""
    for path in coverage.measured_files():
        if path.endswith(f"/{mutation.path}"):
            by_line = coverage.contexts_by_lineno(path)
            line = max((one for one in by_line if one <= mutation.line), default=0)
            return sorted({one.partition("|")[0] for one in by_line.get(line, ()) if one})
    return []


def main() -> int:
    """Seed the faults one by one; return 0 whatever was caught."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="*", default=PACKAGES, choices=PACKAGES)
    parser.add_argument("--coverage", type=Path, help="data of pytest-cov, with the tests' names")
    given = parser.parse_args()
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "checkout"
        subprocess.run(["git", "worktree", "add", "--detach", root, "HEAD"], check=True)
        try:
            results = list(_tried(root, here, given))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", root], check=True)
            shutil.rmtree(root, ignore_errors=True)
    print(f"{sum(bool(one.caught_by) for one in results)} of {len(results)} caught")
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")
    return 0


def _tried(root: Path, here: Path, given: argparse.Namespace) -> Iterator[Mutation]:
    def passes(tests: Sequence[str]) -> bool:
        names = root.parent / "tests.txt"
        names.write_text("".join(f"{one}\n" for one in tests))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "--dist", "loadfile"]
        try:
            done = subprocess.run(
                [*command, "-m", "not slow", f"@{names}"],
                cwd=root,
                env=os.environ
                | {"PYTHONPATH": str(root), "TTS_GOLDEN": str(here / "../shared/golden")},
                capture_output=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    coverage = None
    if given.coverage:
        coverage = CoverageData(str(given.coverage))
        coverage.read()
    for package in given.only:
        stages = {"mirror": [f"tests/{package}"], "all": ["tests"]}
        for mutation, text in draw(root, package, PER_PACKAGE, given.seed):
            path = root / mutation.path
            original = path.read_text()
            if coverage is not None:
                tests = executing(coverage, mutation)
                stages = {"executing": tests} if tests else {"mirror": [f"tests/{package}"]}
            path.write_text(text)
            try:
                failing = (stage for stage, tests in stages.items() if not passes(tests))
                one = replace(mutation, caught_by=next(failing, ""))
            finally:
                path.write_text(original)
            found = one.caught_by or "not caught"
            print(f"{one.path}:{one.line}: {one.before} -> {one.after}: {found}", flush=True)
            yield one


if __name__ == "__main__":
    sys.exit(main())
