"""Conversion of a published checkpoint to the built-in layout, with explicit switches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Literal

from safetensors import SafetensorError

from lab.porting.lora import merge
from models.checkpoints.files import (
    SUMS,
    CheckpointError,
    check_numbers,
    write_sums,
    write_tensors,
)
from models.checkpoints.published.load import Published, read_public, segments
from models.config import CodeSums, ModelConfig

NarMask = Literal["causal", "full"]


@dataclass(frozen=True)
class Switches:
    """Training switches of a file; None: as it was read."""

    code_sums: CodeSums | None = None  # which of the levels below a level are summed as its input
    nar_mask: NarMask | None = None  # attention mask of NAR and masked passes
    language: bool | None = None

    def applied(self, config: ModelConfig) -> ModelConfig:
        """Return a configuration with these switches."""
        changes: dict[str, object] = {}
        if self.code_sums is not None:
            changes |= {"prompt_sums": self.code_sums, "response_sums": self.code_sums}
        if self.nar_mask is not None:
            changes["nar_mask"] = self.nar_mask
        if self.language is not None:
            changes["segments"] = segments(language=self.language)
        return config.model_copy(update=changes)


AS_FILED = Switches()


def convert(
    source: Path, target: Path, switches: Switches = AS_FILED, loras: Sequence[Path] = ()
) -> Published:
    """Write a published language model as `load_lm` reads it; return the model that was read.

    Dtypes and values are kept, so the converted model computes the same. The target is a folder
    without a model, created if missing; ``lm.json`` is written last, as a folder without it is
    not loaded. Raises CheckpointError if the source is invalid, the target holds a model, or
    writing fails.
    """
    description = target / "lm.json"
    if description.exists() or list(target.glob("lm-*.safetensors")):
        raise CheckpointError(f"{target} holds a model already")
    found = read_public(source, lambda tensors: reduce(merge, loras, tensors))
    found = replace(found, config=switches.applied(found.config))
    check_numbers(found.tensors, str(found.path))
    partial = target / "lm.json.partial"
    weights, sums = target / "lm-1.safetensors", target / SUMS
    try:
        target.mkdir(parents=True, exist_ok=True)
        try:
            write_tensors(weights, found.tensors, dtype=None)
            write_sums([weights])
            partial.write_text(found.config.model_dump_json(indent=1) + "\n")
            partial.rename(description)
        except BaseException:
            partial.unlink(missing_ok=True)
            weights.unlink(missing_ok=True)
            sums.unlink(missing_ok=True)
            raise
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{target} cannot be written: {error}") from error
    return found
