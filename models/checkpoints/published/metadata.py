"""Metadata of a published vall-e checkpoint, inside the file or beside it.

Field names and defaults are those of e-c-k-e-r/vall-e's exporter, version 5. Sizes are read from
the tensors; metadata that contradict them are refused by `load`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from models.checkpoints.files import CheckpointError
from models.config import first_problem

# Presets of `size`: width and layers; a head has 64 numbers in all of them.
SIZES = {
    "quarter": (256, 12),
    "half": (512, 12),
    "full": (1024, 12),
    "extended": (1024, 16),
    "double": (1024, 24),
}


class Size(BaseModel):
    """Explicit sizes; None if not stated."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    dim: int | None = None
    heads: int | None = Field(None, gt=0)
    layers: int | None = None
    resp_levels: int | None = None
    audio_tokens: int | None = None
    phoneme_tokens: int | None = None


class Experimental(BaseModel):
    """Architecture switches that change what inference computes; others than these are refused."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    split_classifiers: Literal[True]  # else there is one head for all levels
    audio_embedding_sums: bool | Literal["prom", "resp"] = False
    unified_position_ids: bool = True
    noncausal_masks: bool = False
    causal_size: Literal[1] = 1  # tokens of a step
    rvq_level_range: tuple[()] = ()  # of the levels that it was trained on alone
    # Later features that change the output and are in no published file
    predict_causally: Literal[False] = False
    logit_normalization: Literal[0] = 0
    use_segmented_attention_mask: Literal[False] = False
    use_sliding_attention_mask: Literal[False, 0] = False


class Description(BaseModel):
    """The `config` of a checkpoint, as far as it matters for inference."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = "ar+nar"
    version: Literal[5, 6] = 5
    size: Literal["quarter", "half", "full", "extended", "double"] | Size = "full"
    arch_type: Literal["llama"] = "llama"
    capabilities: tuple[str, ...] = ("ar", "nar")
    experimental: Experimental

    @field_validator("capabilities")
    @classmethod
    def _has_both(cls, found: tuple[str, ...]) -> tuple[str, ...]:
        if missing := {"ar", "nar"} - {*found}:
            raise ValueError(f"{', '.join(sorted(missing))} must be among them")
        return found

    @property
    def sizes(self) -> Size:
        """The explicit sizes, with a preset resolved."""
        if isinstance(self.size, Size):
            return self.size
        dim, layers = SIZES[self.size]
        return Size(dim=dim, layers=layers)


def published(*, masked_level_0: bool) -> Description:
    """Return the description of the published files, for one without metadata."""
    flags = Experimental(
        split_classifiers=True,
        audio_embedding_sums=True,
        unified_position_ids=False,
        noncausal_masks=masked_level_0,
    )
    capabilities = ("ar", "nar", "len") if masked_level_0 else ("ar", "nar")
    name = "ar+nar-len" if masked_level_0 else "ar+nar"
    return Description(name=name, size=Size(), capabilities=capabilities, experimental=flags)


def parse_metadata(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return metadata with JSON values parsed; others stay text."""
    parsed: dict[str, Any] = {}
    for name, text in metadata.items():
        try:
            parsed[name] = json.loads(text)
        except ValueError:
            parsed[name] = text
    return parsed


def describe(metadata: Mapping[str, str], source: str) -> Description | None:
    """Return the description, or None if there is none.

    Raises CheckpointError if it is malformed, or of what is not supported.
    """
    found = parse_metadata(metadata).get("config")
    if found is None:
        return None
    try:
        return Description.model_validate(found)
    except ValidationError as error:
        problem = first_problem(error, of="")
        raise CheckpointError(f"{source}: metadata config.{problem}") from error


def vocabulary(metadata: Mapping[str, str], path: Path) -> dict[str, int]:
    """Return phoneme ids by name, from the metadata or a ``tokenizer.json`` beside the file.

    It is empty if there is neither. Raises CheckpointError if it is no mapping of names to ids.
    """
    userdata = parse_metadata(metadata).get("userdata")
    found = userdata.get("symmap") if isinstance(userdata, dict) else None
    if found is None:
        found = _beside(path.with_name("tokenizer.json"))
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(
        type(number) is int and number >= 0 for number in found.values()
    ):
        raise CheckpointError(f"{path}: the phoneme vocabulary does not map names to ids")
    return found


def _beside(path: Path) -> Any:
    """Return the vocabulary of a tokenizer file, without names of other kinds of rows."""
    if not path.is_file():
        return None
    try:
        stored = json.loads(path.read_bytes())
        names = {entry["content"]: entry["id"] for entry in stored.get("added_tokens", ())}
        names |= stored["model"]["vocab"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is no tokenizer: {error!r}") from error
    return {name: number for name, number in names.items() if not name.startswith("<|")}
