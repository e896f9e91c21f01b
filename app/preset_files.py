"""Presets that an operator adds: JSON files, read once at start, as strict as a request.

    {
     "about": {"anything": "for people"},
     "presets": {"calm": {"temperature": 0.6, "min_p": 0.05}}
    }

They add names and change none: a name that exists already is refused. Loads without torch.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from samplers.knobs.conflicts import ConflictError
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import AUTO, PRESETS, Presets
from samplers.knobs.resolve import resolve

# A preset is how to draw, whatever is drawn: these two belong to a request.
OF_REQUESTS = ("preset", "seed")

PresetName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]


class PresetError(Exception):
    """A file of presets is not valid; the message names file, preset and knob."""


class PresetFile(BaseModel):
    """What one file holds."""

    model_config = ConfigDict(extra="forbid")

    about: dict[str, Any] = Field(
        default_factory=dict, description="How the presets were found; read by people alone."
    )
    presets: dict[PresetName, dict[str, Any]] = Field(
        min_length=1, description="Name to knobs, as in a request."
    )


def read_presets(source: str | Path | None) -> Presets:
    """Return the built-in presets, then those of the files in order of their names.

    Args:
        source: A JSON file, or a folder whose ``*.json`` are read; None adds nothing.

    Raises:
        PresetError: A file cannot be read, holds what is no preset, or a name that is taken.
    """
    found = dict(PRESETS)
    for path in _files(source):
        for name, knobs in _read(path).presets.items():
            if name in {*found, AUTO}:
                raise PresetError(f"presets: {path}: there is a preset {name!r} already")
            found[name] = _knobs(knobs, f"presets: {path}: {name}")
    return found


def _files(source: str | Path | None) -> list[Path]:
    """Return the files to read.

    Raises:
        PresetError: There are none.
    """
    if source is None:
        return []
    path = Path(source)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise PresetError(f"presets: {path} holds no *.json")
    return files


def _read(path: Path) -> PresetFile:
    """Read one file.

    Raises:
        PresetError: It is not there, or no file of presets.
    """
    try:
        return PresetFile.model_validate(
            json.loads(path.read_text("utf-8"), object_pairs_hook=_distinct), strict=True
        )
    except OSError as error:
        raise PresetError(f"presets: {path}: {error.strerror}") from error
    except ValidationError as error:
        raise PresetError(f"presets: {path}: {_first(error)}") from error
    except ValueError as error:  # no JSON, no UTF-8, a name twice
        raise PresetError(f"presets: {path}: {error}") from error


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of JSON, whose names Python would let overwrite each other.

    Raises:
        ValueError: A name stands in it twice.
    """
    twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} stands there twice")
    return dict(pairs)


def _knobs(knobs: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the knobs of one preset with the types of the declaration.

    Raises:
        PresetError: A knob is unknown, out of bounds, in conflict, or not of a preset.
    """
    for name in OF_REQUESTS:
        if name in knobs:
            raise PresetError(f"{where}.{name}: belongs to a request, not to a preset")
    try:
        params = SamplingParams.model_validate_json(json.dumps(knobs), strict=True)
        chosen = {name: getattr(params, name) for name in params.model_fields_set}
        resolve(SamplingParams(), chosen)
    except ValidationError as error:
        raise PresetError(f"{where}.{_first(error)}") from error
    except ConflictError as error:
        raise PresetError(f"{where}: {error}") from error
    return chosen


def _first(error: ValidationError) -> str:
    problem = error.errors()[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg'].removeprefix('Value error, ')}"
