"""Conversion of a published checkpoint to the built-in layout, with explicit switches."""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from safetensors import SafetensorError

from models.checkpoints.files import (
    SUMS,
    CheckpointError,
    check_numbers,
    write_sums,
    write_tensors,
)
from models.checkpoints.published.load import AS_FILED, Published, Switches, read_public
from tools.lora import merge


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
    found = read_public(source, switches, lambda tensors: reduce(merge, loras, tensors))
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
