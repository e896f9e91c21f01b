"""Presets that an operator adds: JSON files, read once at start and validated like a request.

    {
     "about": {"anything": "for people"},
     "presets": {"calm": {"temperature": 0.6, "min_p": 0.05}}
    }

A file may add presets but not replace any. Loads without torch.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from models.config import first_problem
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import AUTO, PRESETS, Presets
from samplers.knobs.resolve import ConflictError, resolve

# A preset cannot set these two.
OF_REQUESTS = ("preset", "seed")

PresetName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]


class PresetError(Exception):
    """A preset file is not valid; the message names file, preset and knob."""


class PresetFile(BaseModel):
    """Schema of a preset file."""

    model_config = ConfigDict(extra="forbid")

    about: dict[str, Any] = Field(
        default_factory=dict, description="Provenance of the presets; not interpreted."
    )
    presets: dict[PresetName, SamplingParams] = Field(
        min_length=1, description="Name to knobs, as in a request."
    )


def read_presets(source: str | Path | None) -> Presets:
    """Return the built-in presets, then those of a file, or of a folder's ``*.json`` by name.

    Raises PresetError if a file cannot be read or is not valid, or a preset exists already.
    """
    found = dict(PRESETS)
    for path in _files(source):
        for name, params in _read(path).presets.items():
            if name in {*found, AUTO}:
                raise PresetError(f"presets: {path}: there is a preset {name!r} already")
            found[name] = _chosen(params, f"presets: {path}: {name}")
    return found


def _files(source: str | Path | None) -> list[Path]:
    if source is None:
        return []
    path = Path(source)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise PresetError(f"presets: {path} has no *.json files")
    return files


def _read(path: Path) -> PresetFile:
    try:
        content = path.read_text("utf-8")
        json.loads(content, object_pairs_hook=_unique_keys)
        return PresetFile.model_validate_json(content, strict=True)
    except OSError as error:
        raise PresetError(f"presets: {path}: {error.strerror}") from error
    except ValidationError as error:
        raise PresetError(f"presets: {path}: {first_problem(error)}") from error
    except (ValueError, RecursionError) as error:  # no JSON, not UTF-8, a key twice, or nested
        raise PresetError(f"presets: {path}: {error}") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> None:
    """Refuse a key that occurs twice in a JSON object; pydantic would keep the last."""
    twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f"key {twice[0]!r} occurs twice")


def _chosen(params: SamplingParams, where: str) -> dict[str, Any]:
    """Return the knobs that a preset sets, if a preset may set them together."""
    chosen = {name: getattr(params, name) for name in params.model_fields_set}
    for name in OF_REQUESTS:
        if name in chosen:
            raise PresetError(f"{where}.{name}: belongs to a request, not to a preset")
    try:
        resolve(SamplingParams(), chosen)
    except ConflictError as error:
        raise PresetError(f"{where}: {error}") from error
    return chosen
