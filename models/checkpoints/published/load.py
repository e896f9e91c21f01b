"""Loading of e-c-k-e-r/vall-e checkpoints: layout detected, everything checked and logged.

The files do not state three switches that change what is computed: which lower levels a level is
predicted from, the NAR attention mask, and whether there is a language segment. Where metadata do
not say it, they are what the files were trained with as far as is known: see `lab.porting.convert`.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from models.checkpoints.files import CheckpointError, fill, read_file
from models.checkpoints.published import one_vocabulary
from models.checkpoints.published.layouts import FileLayout, find_layout, rename
from models.checkpoints.published.metadata import Description, describe, published, vocabulary
from models.config import EOS_ID, CodeSums, ModelConfig, Segment
from models.valle import Valle

log = logging.getLogger(__name__)

_LANGUAGES = ("en", "ja", "de", "fr", "zh", "ko")  # by id
HEAD_DIM = 64  # of every published size
SUFFIXES = {".sft", ".safetensors", ".safetensor"}
MAX_PHONEMES = 150  # about 12 s, the longest utterances of the training data


@dataclass(frozen=True)
class Published:
    """The contents of a published file: our names, the dtypes of the file."""

    path: Path
    form: Literal["ar+nar", "ar+nar-len", "hf"]
    config: ModelConfig
    tensors: Mapping[str, Tensor]

    def __str__(self) -> str:
        config = self.config
        dtypes = sorted({
            str(tensor.dtype).removeprefix("torch.") for tensor in self.tensors.values()
        })
        sums = {config.prompt_sums, config.response_sums}
        named = sums.pop() if len(sums) == 1 else f"{config.prompt_sums}/{config.response_sums}"
        language = "a" if "lang" in config.segments else "no"
        return (
            f"{self.path}: layout {self.form}, {config.layers} layers of {config.width},"
            f" {'/'.join(dtypes)}; code sums {named}, NAR mask {config.nar_mask},"
            f" {language} language segment (`valle-serve tools convert` can set others,"
            " `valle-serve tools eras` finds them)"
        )


def load_public(source: Path) -> Valle:
    """Load a published language model, a file or a folder with one, in float32 and eval mode."""
    found = read_public(source)
    log.info("%s", found)
    model = Valle(found.config)
    fill(model, found.tensors, str(found.path)).lay_out_for_steps()
    return model


def read_public(
    source: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None
) -> Published:
    """Read a published file with its tensors; ``change`` gets them under their published names."""
    path = find_file(source)
    return _parsed(path, *read_file(path), change)


def find_file(source: Path) -> Path:
    """Return the checkpoint file, given itself or its folder.

    Raises CheckpointError if the folder holds none or several, or the file is of another type.
    """
    if not source.is_dir():
        if source.suffix not in SUFFIXES and source.is_file():
            kinds = ", ".join(sorted(SUFFIXES))
            raise CheckpointError(f"{source}: only {kinds} are read, never pickles")
        return source
    files = sorted(file for file in source.iterdir() if file.suffix in SUFFIXES)
    if len(files) != 1:
        raise CheckpointError(f"{source} holds {len(files)} checkpoint files, expected one")
    return files[0]


def _parsed(
    path: Path,
    tensors: dict[str, Tensor],
    metadata: Mapping[str, str],
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None,
) -> Published:
    """Detect layout and configuration of a file's contents."""
    is_hf = one_vocabulary.is_one_vocabulary(tensors)
    if is_hf:
        tensors = one_vocabulary.split_vocabulary(tensors, str(path))
    layout = find_layout(tensors, str(path))
    described = describe(metadata, str(path))
    if described is not None:
        _compare(layout, described, str(path))
    described = described or published(masked_level_0=layout.masked_level_0)
    beside = one_vocabulary.check_description(path.with_name("config.json")) if is_hf else None
    heads = beside or described.sizes.heads or layout.width // HEAD_DIM
    names = vocabulary(metadata, path)
    if outside := [name for name, number in names.items() if number >= layout.phonemes]:
        raise CheckpointError(
            f"{path}: phoneme {outside[0]!r} has id {names[outside[0]]},"
            f" the table {layout.phonemes} rows"
        )
    if not heads or layout.width % heads:
        raise CheckpointError(f"{path}: width {layout.width} cannot be divided into {heads} heads")
    config = _config(layout, described, heads, names)
    form = "hf" if is_hf else layout.name
    if change is not None:
        tensors = change(tensors)
    return Published(path, form, config, rename(layout, tensors))


def _compare(layout: FileLayout, described: Description, source: str) -> None:
    """Refuse metadata that contradict the tensors."""
    sizes = described.sizes
    stated = {
        "size.dim": (sizes.dim, layout.width),
        "size.layers": (sizes.layers, layout.layers),
        "size.resp_levels": (sizes.resp_levels, layout.levels),
        "size.audio_tokens": (sizes.audio_tokens, layout.codes),
        "size.phoneme_tokens": (sizes.phoneme_tokens, layout.phonemes),
    }
    for name, (claimed, found) in stated.items():
        if claimed is not None and claimed != found:
            raise CheckpointError(
                f"{source}: metadata config.{name} is {claimed}, the tensors have {found}"
            )
    if "len" in described.capabilities and not layout.masked_level_0:
        raise CheckpointError(
            f"{source}: metadata claim the capability 'len', the tensors have no length task"
        )


def _config(
    layout: FileLayout, described: Description, heads: int, names: Mapping[str, int]
) -> ModelConfig:
    flags = described.experimental
    summed = flags.audio_embedding_sums
    era: dict[str, CodeSums] = {
        side: "exclusive" if summed is True or summed == side else "none"
        for side in ("prom", "resp")
    }
    first_names: dict[int, str] = {}
    for name, number in names.items():
        first_names.setdefault(number, name)
    rows = range(EOS_ID + 1, layout.phonemes)
    return ModelConfig(
        name=described.name,
        width=layout.width,
        layers=layout.layers,
        heads=heads,
        kv_heads=heads,
        ffn=layout.ffn,
        activation="gelu",
        levels=layout.levels,
        codes=layout.codes,
        phonemes=tuple(first_names.get(number, f"<{number}>") for number in rows),
        phoneme_vocabulary=dict(names),
        max_phonemes=MAX_PHONEMES,
        languages=_LANGUAGES,
        language_rows=layout.languages,
        segments=segments(language="lang" in described.capabilities),
        nar_mask="full" if flags.noncausal_masks else "causal",
        unified_positions=flags.unified_position_ids,
        prompt_sums=era["prom"],
        response_sums=era["resp"],
        masked_level_0=layout.masked_level_0,
        has_null_condition=True,
        nar_has_null_condition=True,
        preset="vall_e",
    )


def segments(*, language: bool) -> tuple[Segment, ...]:
    """Return the segments of a published model, with that of the language or without."""
    if language:
        return ("phn", "lang", "level", "prom", "resp")
    return ("phn", "level", "prom", "resp")
