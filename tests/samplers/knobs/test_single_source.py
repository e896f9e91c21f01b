"""No file but those of the declaration gives a knob a default."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from samplers.knobs.params import SamplingParams

ROOT = Path(__file__).resolve().parents[3]
PARTS = ("params.py", "steps.py", "entropix.py")
DECLARATION = {ROOT / "samplers" / "knobs" / name for name in PARTS}
KNOBS = SamplingParams.model_fields.keys() - {"preset"}  # a model's card names one, too


def defaults(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of every knob that gets a default: a parameter's, a field's or a constant's."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            arguments = node.args
            positional = [*arguments.posonlyargs, *arguments.args]
            with_default = positional[len(positional) - len(arguments.defaults) :]
            keyword = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            with_default += [argument for argument, default in keyword if default is not None]
            names = [(argument.lineno, argument.arg) for argument in with_default]
        elif isinstance(node, ast.ClassDef | ast.Module):
            names = [
                (statement.lineno, target.id)
                for statement in node.body
                if isinstance(statement, ast.AnnAssign | ast.Assign)
                and statement.value
                and not _only_described(statement.value)
                for target in (
                    statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                )
                if isinstance(target, ast.Name)
            ]
        else:
            continue
        yield from ((line, name) for line, name in names if name in KNOBS)


def _only_described(value: ast.expr) -> bool:
    """Whether this is a ``Field(...)`` that says what a field is but gives it no default."""
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id == "Field"
        and not value.args
        and not {"default", "default_factory"} & {keyword.arg for keyword in value.keywords}
    )


def test_defaults_are_found_in_every_form() -> None:
    given = """
top_k = 5
def f(seed=0, *, top_p: float = 0.9, min_p): ...
class A:
    x: int = Field(3)
    temperature: float = Field({})
    preset: str
g = lambda top_k=3: top_k
"""
    every = ["seed", "temperature", "top_k", "top_k", "top_p"]
    for said, found in (
        ("default=3", every),
        ("0", every),
        ("description='x'", [*every[:1], *every[2:]]),
    ):
        assert sorted(name for _, name in defaults(given.format(said))) == found


@pytest.mark.slow
def test_no_other_file_gives_a_knob_a_default() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for folder in ("app", "models", "samplers")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path not in DECLARATION
        for line, name in defaults(path.read_text())
    ]
    assert found == []
