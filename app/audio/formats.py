"""The audio formats by OpenAI's names, and sample rates. Imports nothing heavy."""

from collections.abc import Mapping
from typing import Final, Literal

AudioFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm", "ulaw", "alaw"]
ResponseFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm", "ulaw", "alaw", "codes"]
"""The same, or the codes that the audio is made of."""

FORMAT_ALIASES: Final[Mapping[str, AudioFormat]] = {"ogg": "opus"}
"""Further names of formats: Opus is sent in Ogg, whose suffix files have."""

MEDIA_TYPES: Final[Mapping[AudioFormat, str]] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
    "ulaw": "audio/pcmu",
    "alaw": "audio/pcma",
}

STREAMED: Final[frozenset[ResponseFormat]] = frozenset({
    "mp3",
    "opus",
    "aac",
    "pcm",
    "ulaw",
    "alaw",
})
"""Formats that are streamed by default: their headers have no field for the length."""

DEFAULT_RATES: Final[Mapping[AudioFormat, int]] = {"ulaw": 8000, "alaw": 8000}
"""Formats whose rate is not the model's unless a request says so: those of telephones."""

OPUS_RATES: Final = (8000, 16000, 24000, 48000)
"""Those that the codec has."""
