"""What hatchling puts into a wheel beside `valle_serve`: the service and the built-in voice.

And into wheel and sdist the commit that they are made of.
"""

from pathlib import Path
from runpy import run_path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("app", "gpu", "models", "samplers", "weights")
LEFT_OUT = {"__pycache__", "plots", "revision.txt"}


class Lib(BuildHookInterface):  # type: ignore[type-arg]
    """Maps the repository's folders to `valle_serve/lib`; an editable install finds them here."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name every file and where it goes."""
        if version != "standard":
            return
        root, included = Path(self.root), build_data["force_include"]
        lib = "valle_serve/lib/" if self.target_name == "wheel" else ""
        told = run_path(str(root / "app" / "version.py"))
        note = Path(mkdtemp()) / told["NOTE"].name
        note.write_text(told["REVISION"])
        included[str(note)] = f"{lib}app/{note.name}"
        for folder in FOLDERS if lib else ():
            for file in sorted((root / folder).rglob("*")):
                place = file.relative_to(root)
                if file.is_file() and not LEFT_OUT & set(place.parts):
                    included[str(file)] = f"{lib}{place.as_posix()}"
