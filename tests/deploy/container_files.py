"""The container files as data, for the tests beside this."""

import json
import re
import shlex
from functools import cache
from typing import Any

import yaml

from tests.conftest import ROOT

Instruction = tuple[str, str]


def text(name: str) -> str:
    """Return a file of the root."""
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def stages() -> list[list[Instruction]]:
    """Return the Dockerfile's instructions, one list a stage; the first is what precedes FROM."""
    lines = [line for line in text("Dockerfile").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found: list[list[Instruction]] = [[]]
    for line in filter(None, joined.splitlines()):
        name, _, words = line.strip().partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append((name, words.strip()))
    return found


def last(name: str) -> str:
    """Return what an instruction says last in the last stage."""
    return [words for found, words in stages()[-1] if found == name][-1]


def env() -> dict[str, str]:
    """Return the variables that the last stage sets."""
    pairs = [pair for name, words in stages()[-1] if name == "ENV" for pair in shlex.split(words)]
    return dict(pair.split("=", 1) for pair in pairs)


def copied(stage: list[Instruction]) -> list[tuple[list[str], str]]:
    """Return sources and target of each COPY that takes from the build context."""
    words = [shlex.split(words) for name, words in stage if name == "COPY"]
    return [(parts[:-1], parts[-1]) for parts in words if not parts[0].startswith("--from")]


class _Compose(yaml.SafeLoader):
    """YAML with compose's ``!reset``, which removes what the file below says."""


_Compose.add_constructor("!reset", lambda _loader, _node: None)


def compose(*names: str) -> dict[str, Any]:
    """Return compose files laid over one another, as ``docker compose -f A -f B`` does."""
    merged: dict[str, Any] = {}
    for name in names:
        merged = _merged(merged, yaml.load(text(name), Loader=_Compose))  # a SafeLoader
    return json.loads(json.dumps(merged))  # type: ignore[no-any-return]


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    both = {**below, **{key: _merged(below.get(key), value) for key, value in above.items()}}
    return {key: value for key, value in both.items() if value is not None or key not in above}
