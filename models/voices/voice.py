"""A voice: a few seconds of speech that the model imitates, with its language.

What is kept is the audio. Codes are derived with the loaded codec and live as long as it does, so
voices survive a change of model. Names come from outside: those of built-in voices only ever serve
as keys of a dictionary, never as a path.
"""

import io
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import soundfile
import soxr
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor, nn

from models.codecs.interface import CodecShape
from models.codecs.shipped_codes import SUFFIX, ShippedCodesError, codec_digest, read_codes

MAX_AUDIO_S = 12.0
DEFAULT = "default"
NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$"

_CACHED_VOICES = 64


class VoiceError(ValueError):
    """A voice's files cannot be used; the message names the file."""


class VoiceCard(BaseModel):
    """What the JSON file beside a voice's audio says; every field may be left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field("", max_length=100, description="How people call it.")
    language: str = Field("en", description="Language of the speaker.")
    transcript: str | None = Field(None, description="What the audio says.")
    description: str = Field("", max_length=1000, description="How it sounds, where it is from.")
    is_default: bool = Field(
        False, description="Whether a request without a voice gets it, if none is called default."
    )


class BuiltinCard(VoiceCard):
    """What the JSON file of a voice says that ships with a model."""

    speech_lufs: float | None = Field(
        None, description="How loud the model speaks as it; `python -m scripts.measure_voices`."
    )


class Voice(VoiceCard):
    """Somebody to imitate.

    Attributes:
        name: Identifies it; lower-case letters, digits, `_` and `-`.
        audio: A file that soundfile reads, of which 12 s are heard; None is the model's own,
            unprompted.
        owner: Whose upload it is; None for those that ship with a model.
        digest: SHA-256 of the audio, where a name may come to mean another voice.
        recording: The same file as it was when a job began: an upload may be deleted meanwhile.
        created_at: When it was uploaded, in seconds since 1970.
        audio_s: How long it is, where that is known.
        speech_lufs: How loud the model speaks as it, where that was measured.
        codes: File of its codes, where they ship with the audio: see `models.codecs.shipped_codes`.
    """

    name: str = Field(pattern=NAME_PATTERN)
    audio: Path | None = None
    owner: str | None = None
    digest: str = ""
    recording: bytes | None = Field(None, repr=False)
    created_at: int = 0
    audio_s: float | None = None
    speech_lufs: float | None = None
    codes: Path | None = None

    @property
    def key(self) -> str:
        """What to keep under, together with the owner, that is derived from the audio."""
        return f"{self.name}@{self.digest}" if self.digest else self.name


class BuiltinVoices:
    """The voices that ship with a model: `NAME.flac` with an optional `NAME.json` beside it.

    The name `default` always means one: the voice so named if it exists, else the one whose card
    says that it is the default, else the first.
    """

    def __init__(self, folder: Path) -> None:
        """Read every voice's card; audio is read when it is first needed.

        Args:
            folder: Need not exist: then there is one voice, `default`, the model's own.

        Raises:
            VoiceError: A name or a card is not valid.
        """
        self._voices = {path.stem: _read_voice(path) for path in sorted(folder.glob("*.flac"))}
        if not self._voices:
            self._voices[DEFAULT] = Voice(name=DEFAULT, title="The model's own")

    def __iter__(self) -> Iterator[Voice]:
        """Iterate over all voices, by name."""
        return iter(self._voices.values())

    def __contains__(self, name: object) -> bool:
        return name == DEFAULT or name in self._voices

    def __getitem__(self, name: str) -> Voice:
        """Return the voice of that name.

        Raises:
            KeyError: There is none.
        """
        return self.default if name == DEFAULT else self._voices[name]

    @property
    def default(self) -> Voice:
        """The voice of a request that names none."""
        named = self._voices.get(DEFAULT)
        return named or next((voice for voice in self if voice.is_default), next(iter(self)))


def _read_voice(audio: Path) -> Voice:
    card = audio.with_suffix(".json")
    try:
        said = card.read_bytes() if card.exists() else b"{}"
        fields = BuiltinCard.model_validate_json(said)
        codes = audio.with_suffix(SUFFIX)
        shipped = codes if codes.exists() else None
        return Voice(name=audio.stem, audio=audio, codes=shipped, **fields.model_dump())
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise VoiceError(f"{card}: {field}: {first['msg']}") from error


class Encoder(Protocol):
    """What this module needs of a codec; every `models.codecs.interface.Codec` is one."""

    @property
    def config(self) -> CodecShape:
        """Its shape."""

    def encode(self, samples: Tensor) -> Tensor:
        """Return codes ``[T, K]`` of samples ``[N]``."""


class PromptCodes:
    """The codes of voices under one codec; the most recently used are kept. One thread only."""

    def __init__(
        self, codec: Encoder, device: torch.device, *, max_frames: int, digest: str | None = None
    ) -> None:
        """Keep codes for one codec.

        Args:
            codec: Derives the codes.
            device: Where the codec's weights are.
            max_frames: Longest prompt that the model was trained to hear; 0 is none at all.
            digest: The codec's `codec_digest`; None: it is computed once a voice brings codes.
        """
        self._codec = codec
        self._device = device
        self._max_frames = max_frames
        self._kept: OrderedDict[tuple[str | None, str], Tensor] = OrderedDict()
        self._digest = digest

    def of(self, voice: Voice) -> Tensor | None:
        """Return the voice's codes ``[T, K]`` int64, or None where the model takes no prompt.

        Raises:
            VoiceError: The audio cannot be read.
        """
        if voice.audio is None or not self._max_frames:
            return None
        key = (voice.owner, voice.key)
        if key not in self._kept:
            codes = self._shipped(voice)
            if codes is None:
                codes = self.encode(voice)
            self._kept[key] = codes[: self._max_frames]
            if len(self._kept) > _CACHED_VOICES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def encode(self, voice: Voice) -> Tensor:
        """Return the codes ``[T, K]`` int64 of all of a voice's audio.

        Raises:
            VoiceError: The voice has no audio, or it cannot be read.
        """
        if voice.audio is None:
            raise VoiceError(f"{voice.name} has no audio")
        source = voice.audio if voice.recording is None else io.BytesIO(voice.recording)
        samples = read_mono(source, self._codec.config.sample_rate_hz)
        return self._codec.encode(torch.from_numpy(samples).to(self._device))

    def _shipped(self, voice: Voice) -> Tensor | None:
        """Return codes that came with the voice, if they are this codec's.

        Raises:
            VoiceError: Their file is damaged.
        """
        if voice.codes is None or not isinstance(self._codec, nn.Module):
            return None
        if self._digest is None:
            self._digest = codec_digest(self._codec)
        try:
            codes = read_codes(voice.codes, self._digest)
        except ShippedCodesError as error:
            raise VoiceError(str(error)) from error
        return None if codes is None else codes.to(self._device)


def read_mono(
    source: Path | BinaryIO, sample_rate_hz: int
) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return at most 12 s of a file as ``[N]`` float32 at the given rate, channels averaged.

    Raises:
        VoiceError: The file cannot be read or holds no samples.
    """
    place = source if isinstance(source, Path) else "an uploaded voice"
    try:
        with soundfile.SoundFile(source) as file:
            rate_hz = file.samplerate
            samples = file.read(round(MAX_AUDIO_S * rate_hz), dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise VoiceError(f"{place}: {error}") from error
    if not len(samples):
        raise VoiceError(f"{place}: no samples")
    mono = samples.mean(axis=1)
    return np.asarray(soxr.resample(mono, rate_hz, sample_rate_hz), dtype=np.float32)
