"""The six audio formats by OpenAI's names. Imports nothing heavy."""

from collections.abc import Mapping
from typing import Final, Literal

AudioFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
ResponseFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm", "codes"]
"""The same, or the codes that the audio is made of."""

MEDIA_TYPES: Final[Mapping[AudioFormat, str]] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}

STREAMED: Final[frozenset[ResponseFormat]] = frozenset({"mp3", "opus", "aac", "pcm"})
"""Formats that are streamed by default: their headers have no field for the length."""
