"""What hatchling puts into a wheel beside `valle_serve`: the service and the built-in voice."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("app", "cluster", "models", "samplers", "tools", "weights")
LEFT_OUT = {"__pycache__", "plots", "next"}


class Lib(BuildHookInterface):  # type: ignore[type-arg]
    """Maps the repository's folders to `valle_serve/lib`; an editable install finds them here."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name every file and where it goes."""
        if version != "standard":
            return
        root = Path(self.root)
        for folder in FOLDERS:
            for file in sorted((root / folder).rglob("*")):
                place = file.relative_to(root)
                if file.is_file() and not LEFT_OUT & set(place.parts):
                    build_data["force_include"][str(file)] = f"valle_serve/lib/{place.as_posix()}"
