"""Summary of a local model for `valle-serve tools inspect`, from file headers only."""

from dataclasses import dataclass
from pathlib import Path

from models.checkpoints.builtin import read_config
from models.checkpoints.files import CheckpointError, read_tensors
from models.checkpoints.published.load import find_file, read_public
from models.checkpoints.sources import VOICES
from models.config import ModelConfig

UTTERANCE_S, FRAMES_A_SECOND = 12, 75
"""The memory of a stream is stated for 12 s, the longest utterances of public training data."""

_FLOAT_BYTES = 4
_SEPARATORS = 4


@dataclass(frozen=True)
class Summary:
    """Facts about a local model; `stored_bytes` leaves the codec out, `licence` may be empty."""

    path: Path
    layout: str
    config: ModelConfig
    dtypes: tuple[str, ...]
    parameters: int
    stored_bytes: int
    licence: str

    @property
    def position_bytes(self) -> int:
        """Memory of the float32 keys and values of one position."""
        config = self.config
        return 2 * config.layers * config.kv_heads * config.head_dim * _FLOAT_BYTES

    @property
    def stream_bytes(self) -> int:
        """Memory of a stream's keys and values: prompt, phonemes and 12 s of speech."""
        config = self.config
        positions = config.max_prompt_frames + config.max_phonemes + UTTERANCE_S * FRAMES_A_SECOND
        return self.position_bytes * (positions + _SEPARATORS)

    def lines(self) -> dict[str, str]:
        """Return the printed lines, by topic."""
        config = self.config
        return {
            "name": config.name,
            "path": str(self.path),
            "layout": self.layout,
            "sizes": f"{config.layers} layers of {config.width}, {config.heads} heads"
            f" ({config.kv_heads} of keys), feed-forward {config.ffn}",
            "codes": f"{config.levels} levels of {config.codes}"
            f"{', level 0 also in masked passes' if config.masked_level_0 else ''}",
            "text": f"{len(config.phoneme_ids)} names of phonemes, at most"
            f" {config.max_phonemes} an utterance; {', '.join(config.languages)}",
            "segments": ", ".join(config.segments),
            "switches": f"code sums {config.prompt_sums} (prompt), {config.response_sums}"
            f" (response); NAR mask {config.nar_mask}; positions"
            f" {'unified' if config.unified_positions else 'by segment'}",
            "preset": config.preset,
            "parameters": f"{self.parameters:,}, stored as {', '.join(self.dtypes)} in"
            f" {self.stored_bytes:,} bytes",
            "memory": f"{self.parameters * _FLOAT_BYTES / 1e6:,.0f} MB of weights in float32;"
            f" a stream {self.stream_bytes / 1e6:,.1f} MB for {UTTERANCE_S} s"
            f" ({self.position_bytes:,} bytes a position), twice that where guided",
            "licence": self.licence or "not stated in its files; see its origin",
        }


def summarise(path: Path, licence: str = "") -> Summary:
    """Summarise a folder of the built-in layout, a published file, or a folder with one.

    Raises CheckpointError if it is missing, damaged or of no known layout.
    """
    if not path.exists():
        raise CheckpointError(f"{path} does not exist")
    if (path / "lm.json").is_file():
        config, form = read_config(path / "lm.json", ModelConfig), "built-in"
        files = sorted(path.glob("lm-*.safetensors"))
        tensors = read_tensors(files)
        if path.resolve() == VOICES:
            licence = "Apache-2.0"
    else:
        published = read_public(path)
        config, form, files = published.config, published.form, [find_file(path)]
        tensors = dict(published.tensors)
    return Summary(
        path=path,
        layout=form,
        config=config,
        dtypes=tuple(sorted({str(t.dtype).removeprefix("torch.") for t in tensors.values()})),
        parameters=sum(tensor.numel() for tensor in tensors.values()),
        stored_bytes=sum(file.stat().st_size for file in files),
        licence=licence,
    )
