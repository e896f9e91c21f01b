"""What hatchling puts into a wheel: the service and the built-in voice, all of it in `valle_serve`.

In the repository `app`, `gpu`, `models` and `samplers` lie at the top. Such names are nobody's to
take in site-packages, so a wheel has them inside `valle_serve`, and their modules name one another
there. Into wheel and sdist goes the commit that they are made of.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "valle_serve"
MOVED = ("app", "cpu", "gpu", "models", "samplers")
"""Packages at the top of the repository that a wheel has in `PACKAGE`."""
FOLDERS = (*MOVED, "weights")
LEFT_OUT = {"__pycache__", "plots", "revision.txt"}

_PREFIX = f"{PACKAGE}.".encode()
_NAME = re.compile(rf"({'|'.join(MOVED)})((\.\w+)*)(:\w+)?")


class Wheel(BuildHookInterface):  # type: ignore[type-arg]
    """Names every file and where it goes; an editable install finds them in the repository."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the modules of a wheel as it has them; an sdist has those of the repository."""
        if version != "standard":
            return
        root = Path(self.root)
        included = build_data["force_include"]
        is_wheel = self.target_name == "wheel"
        revision = run_path(str(root / "app" / "version.py"))
        written = Path(mkdtemp())
        self._written = written
        note = written / revision["NOTE"].name
        note.write_text(revision["REVISION"])
        included[str(note)] = f"{PACKAGE}/app/{note.name}" if is_wheel else f"app/{note.name}"
        for folder in (PACKAGE, *FOLDERS) if is_wheel else ():
            for file in sorted((root / folder).rglob("*")):
                place = file.relative_to(root)
                if not file.is_file() or LEFT_OUT & set(place.parts):
                    continue
                source = file
                if file.suffix == ".py":
                    source = written / place
                    source.parent.mkdir(parents=True, exist_ok=True)
                    source.write_bytes(moved(file.read_bytes(), root))
                target = place if folder == PACKAGE else PACKAGE / place
                included[str(source)] = target.as_posix()

    def finalize(self, version: str, *_: Any) -> None:
        """Remove what was written for the wheel."""
        if version == "standard":
            rmtree(self._written)


def moved(source: bytes, root: Path) -> bytes:
    """Return a module that names the modules of a wheel, with the lines that it had.

    What is renamed are imports, and strings that are the name of a module of the repository at
    ``root``, or of something in one, as "app.cli:main". Comments and prose stay.

    Raises ValueError if an import binds the name of a package that has moved.
    """
    lines = source.splitlines(keepends=True)
    for line, column, ending in sorted(_places(source, lines, root), reverse=True):
        text = lines[line]
        name = re.compile(rb"[\w.:]+").match(text, column)
        assert name is not None
        lines[line] = text[:column] + _PREFIX + name[0] + ending + text[name.end() :]
    return b"".join(lines)


def _places(source: bytes, lines: list[bytes], root: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield line and column of each name that has moved, and what is to stand behind it."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(name)) if _is_moved(name):
                line = node.lineno - 1
                yield line, lines[line].index(name.encode(), node.col_offset), b""
            case ast.Import(names=names):
                for alias in names:
                    if not _is_moved(alias.name):
                        continue
                    if "." in alias.name and alias.asname is None:
                        raise ValueError(f"line {node.lineno}: from ... import {alias.name}")
                    bound = b"" if alias.asname else f" as {alias.name}".encode()
                    yield alias.lineno - 1, alias.col_offset, bound
            case ast.Constant(value=str(text)) if _is_module(text, root):
                yield node.lineno - 1, node.col_offset + 1, b""


def _is_moved(name: str) -> bool:
    return name.partition(".")[0] in MOVED


def _is_module(text: str, root: Path) -> bool:
    """Return whether a text is the name of a module that has moved; one word may be anything."""
    name = _NAME.fullmatch(text)
    if name is None or not name[2]:
        return False
    place = root.joinpath(*f"{name[1]}{name[2]}".split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()
