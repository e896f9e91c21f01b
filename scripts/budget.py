"""Print the size of the product; hold its shape, and the rules of docstrings ruff has none for.

Usage: python -m scripts.budget

Who raises a limit says why in the changelog; who gets well below one lowers it.
"""

import ast
import collections
import io
import pathlib
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator

from scripts import shape

PRODUCT = ("app", "cpu", "gpu", "models", "samplers", "valle_serve")
DOCUMENTED = (*PRODUCT, "deploy", "lab", "scripts", "examples")
MOST_PARAMETERS = 6
LIMITS = {
    "twice": 0,  # public names that two files define
    "large": 15,  # classes of more than `shape.MOST_ATTRIBUTES`
    "largest": 43,  # attributes of the largest
    "parallel": 0,  # lines that give values to several names at once
    "words": 0,  # names with an old word: `shape.OLD_WORDS`
    "wide": 17,  # functions of more than `MOST_PARAMETERS`
    "folder": 15,  # files of the largest folder
}
ELSEWHERE = re.compile(
    r"\bissues? #?\d|\bworkplace\b|\ba lent\b|\blent (?:machine|card|GPU)\b"
    r"|\bearlier sessions\b|\b(?:third|fourth|fifth|sixth|seventh|eighth|ninth) session\b"
    r"|\bsession \d|\bother people's (?:tests|work)\b",
    re.IGNORECASE,
)
"""What tells of how the project is worked on: a reader of a page or a comment was not there."""
_READ = {".py", ".md", ".js", ".css", ".html", ".yml", ".yaml", ".toml", ".sh", ".txt", ""}
_NOT_OURS = ("app/studio/vendor/", "lab/training/judging/", "tests/scripts/test_budget.py")
_NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


_OWN = {"scripts/budget.py", "tests/scripts/test_budget.py"}


def tracked(*folders: str) -> list[pathlib.Path]:
    """Return the Python files of some folders that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *(f"{folder}/**.py" for folder in folders)],
        capture_output=True,
        check=True,
        text=True,
    )
    return [
        path for name in listed.stdout.split("\0") if name and (path := pathlib.Path(name)).exists()
    ]


def wide(tree: ast.Module) -> list[str]:
    """Return the functions of a module that take more than `MOST_PARAMETERS`, self not counted."""
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and sum(
            one.arg not in {"self", "cls"}
            for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        )
        > MOST_PARAMETERS
    ]


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that docstrings and other strings without use take."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(source: str) -> set[int]:
    """Return the numbers of the lines that hold neither a comment alone nor nothing."""
    return {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }


def faults(path: pathlib.Path) -> Iterator[str]:
    """Yield the docstrings of a file that are longer than the rules of CONTRIBUTING.md allow."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        private = node.name.startswith("_") and not node.name.startswith("__")
        if text is not None and node.name == "__init__" and len(node.body) > 1:
            yield f"{path}:{node.lineno}: __init__ has a docstring; describe arguments in the class"
        elif text is not None and private and "\n" in text:
            yield f"{path}:{node.lineno}: the docstring of {node.name} has more than one line"


def told_elsewhere(paths: list[pathlib.Path]) -> Iterator[str]:
    """Yield the lines that speak of how the project is worked on."""
    for path in paths:
        if path.suffix not in _READ or str(path).startswith(_NOT_OURS):
            continue
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
            if match := ELSEWHERE.search(line):
                yield f"{path}:{number}: a reader was not there: {match.group()!r}"


def measure() -> tuple[dict[str, float], str]:
    """Return the figures that have limits, and a line that tells them."""
    total: collections.Counter[str] = collections.Counter()
    attributes: dict[str, int] = {}
    trees: dict[str, ast.Module] = {}
    folders: collections.Counter[str] = collections.Counter()
    files = tracked(*PRODUCT)
    for path in files:
        source = path.read_text()
        tree = ast.parse(source)
        documented = docstring_lines(tree)
        total["lines"] += len(source.splitlines())
        total["code"] += len(code_lines(source) - documented)
        total["documented"] += len(documented)
        total["wide"] += len(wide(tree))
        trees[str(path)] = tree
        attributes |= shape.large_classes(tree)
        total["parallel"] += len(shape.parallel_assignments(tree))
        total["words"] += len(shape.old_words(tree))
        folders[str(path.parent)] += path.name != "__init__.py"
    twice = shape.defined_twice(trees)
    (largest, most), *_ = folders.most_common(1)
    found: dict[str, float] = {
        "lines": total["lines"],
        "code": total["code"],
        "docstrings": round(100 * total["documented"] / total["lines"], 1),
        "tests": sum(len(path.read_text().splitlines()) for path in tracked("tests")),
        "twice": len(twice),
        "large": len(attributes),
        "largest": max(attributes.values(), default=0),
        "parallel": total["parallel"],
        "words": total["words"],
        "wide": total["wide"],
        "folder": most,
    }
    return found, (
        f"product {found['lines']} lines ({found['code']} code, {found['docstrings']} % docstrings)"
        f" in {len(files)} files; tests {found['tests']} lines; names twice:"
        f" {', '.join(twice) or 'none'}; over {MOST_PARAMETERS} parameters: {found['wide']};"
        f" classes over {shape.MOST_ATTRIBUTES} attributes: {found['large']}, the largest"
        f" {found['largest']}; parallel assignments: {found['parallel']}; old words:"
        f" {found['words']}; largest folder: {largest}, {most}"
    )


def main() -> int:
    """Print the figures; return 1 if one is above its limit, or a docstring breaks a rule."""
    found, line = measure()
    print(line)
    broken = [fault for path in tracked(*DOCUMENTED) for fault in faults(path)]
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, check=True, text=True)
    names = [name for name in listed.stdout.split("\0") if name and name not in _OWN]
    broken += told_elsewhere([path for name in names if (path := pathlib.Path(name)).is_file()])
    broken += [
        f"{name}: {found[name]} is above the limit of {limit}, in scripts/budget.py"
        for name, limit in LIMITS.items()
        if found[name] > limit
    ]
    print(*broken, sep="\n", end="\n" * bool(broken))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
