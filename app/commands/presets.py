"""`valle-serve presets`: the sets of knobs that a request may name."""

import json

from pydantic import BaseModel, Field
from pydantic_settings import CliPositionalArg

from app.commands.errors import CommandError
from app.settings import Settings
from app.storage.preset_files import read_presets


class PresetsCommand(BaseModel):
    """List the presets with the knobs that each sets, or those of one as JSON."""

    name: CliPositionalArg[str | None] = Field(None, description="Name of one preset.")

    def cli_cmd(self) -> None:
        """Print a line a preset, or the knobs of one."""
        presets = read_presets(Settings().presets or None)
        if self.name is None:
            for name, knobs in presets.items():
                values = ", ".join(f"{knob} {json.dumps(value)}" for knob, value in knobs.items())
                print(f"{name:<12} {values or 'the defaults'}")
            return
        if self.name not in presets:
            raise CommandError(f"name: no preset {self.name!r}; choose from {', '.join(presets)}")
        print(json.dumps(presets[self.name], indent=1))
