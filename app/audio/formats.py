"""The six formats of sound, by the names that OpenAI's clients send. Loads nothing."""

from collections.abc import Mapping
from typing import Final, Literal

AudioFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]

MEDIA_TYPES: Final[Mapping[AudioFormat, str]] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}

STREAMED: Final[frozenset[AudioFormat]] = frozenset({"mp3", "opus", "aac", "pcm"})
"""Streamed unless told not to: their heads have no length to tell, as those of wav and flac do."""
