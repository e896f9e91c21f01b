"""Voices: a few seconds of speech that the model imitates, with a language and a description.

A voice is stored as audio, its codes are cached in memory, so voices survive a change of model.
Names come from requests: they are only used as dictionary keys, never as paths.
"""

import io
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from models.codecs.interface import Codec
from models.codecs.shipped_codes import SUFFIX, codec_digest, read_codes
from models.config import first_problem
from models.voices.recording import MAX_AUDIO_S

DEFAULT = "default"
NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$"

_TYPED = re.compile(r"[^\W_][\w .,'()&+-]{0,99}")  # a name as people write one

_CACHED_VOICES = 64


def id_of(name: str) -> str:
    """Return the id for a name that was typed, as `anna-b` for Anna B; "" if it has no letter."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9_-]+", "-", plain.lower()).strip("-_")[:64]


def named(name: str, title: str = "") -> tuple[str, str]:
    """Return id and title of a voice whose name was typed; a name that is no name stays as it is.

    The title is the name as it was typed, unless one is given or the id says the same.
    """
    found = id_of(name)
    if re.fullmatch(r"[a-z0-9_-]*", name) or not found or not _TYPED.fullmatch(name):
        return name, title
    return found, title or name


class VoiceError(ValueError):
    """A file of a voice cannot be used; the message names the file."""


class VoiceCard(BaseModel):
    """The JSON file beside a voice's audio; every field is optional."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field("", max_length=100, description="Display name.")
    language: str = Field("en", description="Language of the speaker.")
    gender: Literal["", "female", "male", "neutral"] = Field("", description="Of the speaker.")
    accent: str = Field("", max_length=100, description="Of the speaker, as in British.")
    transcript: str | None = Field(None, description="What the audio says.")
    description: str = Field("", max_length=1000, description="How it sounds, where it is from.")
    is_default: bool = Field(
        False, description="Whether a request without a voice gets it, if none is called default."
    )


class BuiltinCard(VoiceCard):
    """The JSON file of a voice that ships with a model."""

    speech_lufs: float | None = Field(
        None,
        description="Loudness of speech in this voice; from `python -m scripts.measure_voices`.",
    )


class Voice(VoiceCard):
    """A voice that requests can name."""

    name: str = Field(pattern=NAME_PATTERN)  # identifier; lower-case letters, digits, `_` and `-`
    # an audio file, of which the first 12 s are used; None: the model speaks unprompted
    audio: Path | None = None
    owner: str | None = None  # owner of an uploaded voice; None for those that ship with a model
    # SHA-256 of the audio of an uploaded voice, whose name may be reused; else empty
    digest: str = ""
    # contents of `audio` when a job began, as an upload may be deleted meanwhile
    recording: bytes | None = Field(None, repr=False)
    created_at: int = 0  # time of the upload, in seconds since 1970
    audio_s: float | None = None  # length of the audio in seconds, if known
    speech_lufs: float | None = None  # loudness of speech in this voice, if measured
    # file with the codes of `audio`, if it ships: see `models.codecs.shipped_codes`
    codes: Path | None = None
    warnings: tuple[str, ...] = ()  # what may spoil it, as found when it was uploaded; empty later

    @property
    def key(self) -> str:
        """Cache key, together with the owner, for what is derived from the audio."""
        return f"{self.name}@{self.digest}" if self.digest else self.name


class BuiltinVoices:
    """The voices that ship with a model: `NAME.flac` with an optional `NAME.json` beside it.

    The name `default` always exists: it is the voice of that name, else the one whose card says
    that it is the default, else the first by name.
    """

    def __init__(self, folder: Path) -> None:
        self._voices = {path.stem: _read_voice(path) for path in sorted(folder.glob("*.flac"))}
        if not self._voices:
            self._voices[DEFAULT] = Voice(name=DEFAULT, title="The model's own")

    def __iter__(self) -> Iterator[Voice]:
        """Iterate over all voices, by name."""
        return iter(self._voices.values())

    def __contains__(self, name: object) -> bool:
        return name == DEFAULT or name in self._voices

    def __getitem__(self, name: str) -> Voice:
        """Return the voice of that name."""
        return self.default if name == DEFAULT else self._voices[name]

    @property
    def default(self) -> Voice:
        """The voice for requests that name none."""
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
        raise VoiceError(f"{card}: {first_problem(error)}") from error


class PromptCodes:
    """LRU cache of voices' codes for one codec. Not thread-safe.

    ``max_frames`` is the longest prompt of the model; 0: it takes none. A ``digest``
    (`codec_digest`) of None is computed for the first voice that ships with codes.
    """

    def __init__(
        self,
        codec: Codec,
        device: torch.device,
        *,
        max_frames: int,
        digest: str | None = None,
    ) -> None:
        self._codec = codec
        self._device = device
        self._max_frames = max_frames
        self._entries: OrderedDict[tuple[str | None, str], Tensor] = OrderedDict()
        self._digest = digest

    def of(self, voice: Voice) -> Tensor | None:
        """Return the codes ``[T, K]`` int64 of a voice, or None if there is no prompt."""
        if voice.audio is None or not self._max_frames:
            return None
        key = (voice.owner, voice.key)
        if key not in self._entries:
            codes = self._shipped(voice)
            if codes is None:
                codes = self.encode(voice)
            self._entries[key] = codes[: self._max_frames]
            if len(self._entries) > _CACHED_VOICES:
                self._entries.popitem(last=False)
        self._entries.move_to_end(key)
        return self._entries[key]

    def encode(self, voice: Voice) -> Tensor:
        """Encode a voice's audio, without caching and truncation: ``[T, K]`` int64.

        Raises VoiceError if the voice has no audio, or it cannot be read.
        """
        if voice.audio is None:
            raise VoiceError(f"{voice.name} has no audio")
        source = voice.audio if voice.recording is None else io.BytesIO(voice.recording)
        samples = read_mono(source, self._codec.config.sample_rate_hz)
        return self._codec.encode(torch.from_numpy(samples).to(self._device))

    def _shipped(self, voice: Voice) -> Tensor | None:
        """Return the codes that ship with a voice, if they belong to this codec."""
        if voice.codes is None:
            return None
        if self._digest is None:
            self._digest = codec_digest(self._codec)
        codes = read_codes(voice.codes, self._digest)
        return None if codes is None else codes.to(self._device)


def read_mono(
    source: Path | BinaryIO, sample_rate_hz: int
) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return the first 12 s of a file, mono ``[N]`` float32, resampled to the given rate.

    Raises VoiceError if the file cannot be read or holds no samples.
    """
    import soundfile
    import soxr

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
