"""The container files as data, for the tests beside this."""

import json
import re
import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import yaml

from app.settings import Settings
from tests.conftest import ROOT

Instruction = tuple[str, str]


def text(name: str) -> str:
    """Return a file of the root."""
    return (ROOT / name).read_text(encoding="utf-8")


TARGETS = ("cpu", "cuda")


@cache
def stages() -> dict[str, list[Instruction]]:
    """Return the Dockerfile's instructions by stage; what precedes the first FROM has no name."""
    lines = [line for line in text("Dockerfile").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found: dict[str, list[Instruction]] = {"": []}
    for line in filter(None, joined.splitlines()):
        name, _, words = line.strip().partition(" ")
        if name == "FROM":
            found[words.split()[-1]] = []
        found[list(found)[-1]].append((name, words.strip()))
    return found


def base(stage: str) -> str:
    """Return what a stage begins with."""
    return stages()[stage][0][1].split()[0]


def image(target: str) -> list[Instruction]:
    """Return the instructions that make a target, those of the stages that it begins with too."""
    before = image(base(target)) if base(target) in stages() else []
    return [*before, *stages()[target][1:]]


def last(name: str, target: str = "cuda") -> str:
    """Return what an instruction says last in a target."""
    return [words for found, words in image(target) if found == name][-1]


def env(target: str = "cuda") -> dict[str, str]:
    """Return the variables that a target sets."""
    pairs = [pair for name, words in image(target) if name == "ENV" for pair in shlex.split(words)]
    return dict(pair.split("=", 1) for pair in pairs)


def settings_of(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str | None]) -> Settings:
    """Return the settings of a container with such variables; an unknown one is refused."""
    monkeypatch.delenv("TTS_TEXT_PROCESS", raising=False)  # the default, which tests change
    for name, value in variables.items():
        if name.startswith("TTS_") and value is not None:
            monkeypatch.setenv(name, value)
    return Settings()


def volumes(target: str = "cuda") -> set[str]:
    """Return the folders of a target that outlive it."""
    return {folder for name, words in image(target) if name == "VOLUME" for folder in words.split()}


def copied(stage: str) -> list[tuple[list[str], str]]:
    """Return sources and target of each COPY of a stage that takes from the build context."""
    copies = [shlex.split(words) for name, words in stages()[stage] if name == "COPY"]
    plain = [
        [word for word in words if not word.startswith("--")]
        for words in copies
        if not any(word.startswith("--from") for word in words)
    ]
    return [(parts[:-1], parts[-1]) for parts in plain]


class _Compose(yaml.SafeLoader):
    """YAML with compose's ``!reset`` and ``!override``: away with what the file below says."""

    def replaced(self, node: yaml.SequenceNode) -> list[Any] | None:
        """Return what comes in its place; nothing stands for nothing."""
        return self.construct_sequence(node, deep=True) or None


_Compose.add_constructor("!reset", _Compose.replaced)
_Compose.add_constructor("!override", _Compose.replaced)


def parsed(document: str) -> Any:
    """Return a compose file as data."""
    return yaml.load(document, Loader=_Compose)  # a SafeLoader


def compose(*names: str) -> dict[str, Any]:
    """Return compose files laid over one another, as ``docker compose -f A -f B`` does."""
    merged: dict[str, Any] = {}
    for name in names:
        merged = _merged(merged, parsed(text(name)))
    for service in merged["services"].values():
        for reset in [key for key, value in service.items() if value is None]:
            del service[reset]
    return json.loads(json.dumps(merged))  # type: ignore[no-any-return]


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    both = {**below, **{key: _merged(below.get(key), value) for key, value in above.items()}}
    return {key: value for key, value in both.items() if value is not None or key not in above}
