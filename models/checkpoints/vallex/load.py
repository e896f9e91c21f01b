"""Loading of Plachtaa/VALL-E-X and lifeiteng/vall-e, from the tensors of a safetensors file.

Pickles are converted first: `models.checkpoints.vallex.pickles`. How many heads there are and how a
prompt was read in training is not told by tensors. VALL-E-X has the numbers of its publication; of
other models these are settings of the trainer's file, which a conversion keeps in the metadata.
Else they are asked for in ``settings.json`` beside the file.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from models.checkpoints.files import CheckpointError, fill, read_file
from models.checkpoints.vallex.folding import folded
from models.checkpoints.vallex.layout import CODES, LEVELS, VallexLayout, vallex_layout
from models.config import EOS_ID, BlockSpec, ModelConfig, ReaderName, StackSize, first_problem
from models.valle import Valle

log = logging.getLogger(__name__)

SETTINGS: Final = "settings"
"""Of the metadata of a converted file: the trainer's settings, in JSON."""

SYMBOL_FILE: Final = "unique_text_tokens.k2symbols"
"""The symbol table beside a model of lifeiteng/vall-e."""

_LANGUAGES: Final = ("en", "zh", "ja")  # by id
_MAX_PHONEMES: Final = 150  # about 12 s: with the prompt below the 22 s of the training data
MAX_PROMPT_FRAMES: Final = 900  # 12 s, all that is kept of a voice
_HEAD_DIM: Final = 64

_SYMBOLS: Final = "!#*,-.=?NQ^_`abdefghijklmnopstuvwxyz~æçðŋɑɔəɛɥɪɫɯɸɹɾʃʊʑʒʰˈˌθ…⁼↑→↓"
VOCABULARY: Final = {symbol: number for number, symbol in enumerate(_SYMBOLS, start=5)}
"""The symbols of VALL-E X and their ids; a space is written as an underscore."""


class TrainerSettings(BaseModel):
    """What a trainer's file states, as far as tensors do not."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    nhead: int | None = Field(None, gt=0)
    prefix_mode: Literal[0, 1, 2, 4] | None = None
    # no setting of a trainer: whether texts are read as the reference does, with its mistakes
    reference_text: bool = False


@dataclass(frozen=True)
class ReadFile:
    """The contents of a file: our configuration, and its tensors under their published names."""

    path: Path
    layout: VallexLayout
    config: ModelConfig
    tensors: Mapping[str, Tensor]

    def __str__(self) -> str:
        config = self.config
        nar = self.config.nar
        return (
            f"{self.path}: {config.name}, {config.layers} + {nar.layers} layers of {config.width}"
            f" and {nar.width}; LayerNorm, adaptive norms and languages are folded at load"
        )


def load_vallex(path: Path) -> Valle:
    """Load a model of this family in float32 and eval mode."""
    found = read_vallex(path)
    log.info("%s", found)
    model = Valle(found.config)
    fill(model, folded(found.tensors, found.layout, found.config), str(path)).lay_out_for_steps()
    return model


def read_vallex(path: Path) -> ReadFile:
    """Read a file of this family; raises CheckpointError for what cannot be loaded."""
    tensors, metadata = read_file(path)
    layout = vallex_layout(tensors, str(path))
    return ReadFile(path, layout, vallex_config(layout, _settings(path, metadata), path), tensors)


def _settings(path: Path, metadata: Mapping[str, str]) -> TrainerSettings:
    """Return the settings in the metadata of a file; those beside it count more."""
    beside = path.with_name("settings.json")
    try:
        stored = json.loads(metadata.get(SETTINGS, "{}"))
        if beside.is_file():
            stored |= json.loads(beside.read_text())
        return TrainerSettings.model_validate(stored)
    except (OSError, ValueError, TypeError) as error:
        problem = first_problem(error) if isinstance(error, ValidationError) else error
        raise CheckpointError(f"{path}: its settings: {problem}") from error


def vallex_config(layout: VallexLayout, settings: TrainerSettings, path: Path) -> ModelConfig:
    """Return our configuration of a file's sizes; raises CheckpointError if more must be told."""
    ar = layout.ar
    nar = layout.nar
    multilingual = bool(layout.languages)
    heads = settings.nhead or (ar.width // _HEAD_DIM if multilingual else None)
    mode = 1 if settings.prefix_mode is None and multilingual else settings.prefix_mode
    if not heads or mode is None:
        raise CheckpointError(
            f"{path}: tensors do not tell nhead and prefix_mode; write those of its training to"
            f' {path.with_name("settings.json")}, as {{"nhead": 16, "prefix_mode": 1}}'
        )
    if multilingual and layout.languages != len(_LANGUAGES):
        raise CheckpointError(
            f"{path}: {layout.languages} languages, only {', '.join(_LANGUAGES)} are known"
        )
    vocabulary = VOCABULARY if multilingual else read_symbols(path.with_name(SYMBOL_FILE))
    used = 1 + max(VOCABULARY.values()) if multilingual else layout.texts
    if outside := [one for one, number in vocabulary.items() if number >= layout.texts]:
        raise CheckpointError(f"{path}: symbol {outside[0]!r} is outside the {layout.texts} rows")
    if "_" in vocabulary:
        vocabulary = {" ": vocabulary["_"], **vocabulary}
    names = {number: symbol for symbol, number in reversed(vocabulary.items())}
    try:
        return ModelConfig(
            name="vall-e-x" if multilingual else "vall-e",
            width=ar.width,
            layers=ar.layers,
            heads=heads,
            kv_heads=heads,
            ffn=ar.ffn,
            activation="relu",
            block=BlockSpec(bias=True, ffn="plain", positions="added", gains="by_level"),
            nar_stack=StackSize(
                width=nar.width,
                layers=nar.layers,
                heads=max(1, heads * nar.width // ar.width),
                ffn=nar.ffn,
            ),
            norm_eps=1e-5,
            levels=LEVELS,
            codes=CODES,
            phonemes=tuple(names.get(number, f"<{number}>") for number in range(EOS_ID + 1, used)),
            phoneme_vocabulary=vocabulary,
            reader=_reader(settings, multilingual=multilingual),
            text_marks=not multilingual,
            phonemes_by_language=multilingual,
            max_phonemes=_MAX_PHONEMES,
            languages=_LANGUAGES if multilingual else ("en",),
            segments=("phn", "resp"),
            separators=False,
            text_mask="full",
            prompt="response",
            start_token=layout.start_token,
            nar_prompt_text=mode in {0, 1},
            frames_a_symbol=16,
            nar_mask="full",
            prompt_sums="inclusive" if mode == 0 else "all",
            shared_tables=True,
            max_prompt_frames=MAX_PROMPT_FRAMES,
            preset="stable",
        )
    except ValidationError as error:
        raise CheckpointError(f"{path}: {first_problem(error)}") from error


def _reader(settings: TrainerSettings, *, multilingual: bool) -> ReaderName:
    if not multilingual:
        return "lifeiteng"
    return "vall_e_x_reference" if settings.reference_text else "vall_e_x"


def read_symbols(path: Path) -> dict[str, int]:
    """Return the ids of a symbol table of k2, a symbol and its id a line; empty without the file.

    Raises CheckpointError if it is none.
    """
    if not path.is_file():
        return {}
    found: dict[str, int] = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            symbol, _, number = line.strip("\n").rpartition(" ")
            found[symbol] = int(number)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is no symbol table: {error}") from error
    return found
