"""The parsed command line of `valle-serve speak`: request, text, and where the audio goes."""

import json
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import AliasChoices, Field, field_validator, model_validator
from pydantic_settings import CliPositionalArg

from app.api.schemas import SpeechOptions
from app.audio.formats import AudioFormat
from app.commands.client import ServerOptions
from app.commands.speech.book_file import BOOK_SUFFIXES
from app.settings import Settings
from app.storage.preset_files import read_presets
from samplers.knobs.presets import AUTO
from samplers.knobs.steps import ORDERS

PIPE = "-"
"""Stands for stdin as the text, and for stdout as the file."""


class SpeakOptions(SpeechOptions, ServerOptions):
    """The parsed command line of `valle-serve speak`."""

    shown: ClassVar[Sequence[str]] = (
        *("input", "file", "out", "play", "subtitles"),
        *("voice", "preset", "seed", "speed", "loudness_lufs", "temperature", "top_p"),
        *("repetition_penalty", "cfg_strength", "pause_s"),
        *("url", "key", "model", "language", "response_format", "max_duration_s", "trace"),
        *("timestamps", "continue_from", "pronunciations", "dictionaries"),
    )
    """Fields of the short help."""

    help_texts: ClassVar[Mapping[str, str]] = {
        "voice": "A voice of `valle-serve voices list`; default the model's own.",
        "preset": "A set of knobs of `valle-serve presets` to start from; `auto` is the model's.",
        "loudness_lufs": "Target loudness by ITU-R BS.1770: -16 is usual for podcasts, -23 for"
        " broadcasts; default as it is.",
        "trace": "Write what was drawn, and why, to hello.wav.json beside hello.wav.",
        "timestamps": "With --trace: whether the report tells when each word, or phoneme, is"
        " heard.",
    }
    """What fields of a request are on a command line."""

    input: CliPositionalArg[str | None] = Field(
        None, description="The text to speak, or the name of a file; - reads it from stdin."
    )
    file: Path | None = Field(
        None,
        validation_alias=AliasChoices("f", "file"),
        description="File to speak, in place of the text itself: text, Markdown, HTML, EPUB or"
        " subtitles, told by its contents.",
    )
    out: Path | None = Field(
        None,
        validation_alias=AliasChoices("o", "out"),
        description="The file to write; its suffix is the format; - streams to stdout.",
    )
    subtitles: Path | None = Field(
        None,
        description="Subtitle file to write beside the audio, .srt or .vtt, from the times of the"
        " words.",
    )
    play: bool = Field(
        False, description="Play the speech while it is generated, with or without a file."
    )
    model: str | None = Field(None, description="Model folder; by default that of TTS_MODEL.")
    response_format: AudioFormat | None = Field(
        None,
        description="Audio format; by default that of the file's suffix, and wav for stdout.",
    )

    @staticmethod
    def preset_defaults(arguments: Sequence[str]) -> Mapping[str, Any]:
        """Return the knobs of the preset that holds with such arguments, as far as known."""
        given = ArgumentParser(add_help=False, allow_abbrev=False)
        for flag in ("--model", "--preset", "--url"):
            given.add_argument(flag)
        known, _ = given.parse_known_args(arguments)
        settings = Settings()
        presets = read_presets(settings.presets or None)
        if known.preset not in {None, AUTO}:
            return presets.get(known.preset, {})
        try:
            card = Path(known.model or settings.model) / "lm.json"
            source = json.loads(card.read_text())["preset"] if known.url is None else "default"
        except (OSError, ValueError, KeyError):  # of a server, or of a model that is not here
            return {}
        return presets.get(source, {}) if isinstance(source, str) else dict(source)

    @field_validator("mirostat_mode", "sampler_order", mode="before")
    @classmethod
    def _parse_choice(cls, given: Any) -> Any:
        """Return a choice of numbers or of words and lists as a request has it; it came as text."""
        if isinstance(given, list) and len(given) == 1 and given[0] in ORDERS:
            return given[0]
        return int(given) if isinstance(given, str) and given.isdecimal() else given

    @model_validator(mode="after")
    def _subtitles_have_times(self) -> Self:
        """Ask for the times of words where subtitles are wanted."""
        if self.subtitles is not None and self.timestamps == "none":
            return self.model_copy(update={"timestamps": "word"})
        return self

    @property
    def piped(self) -> bool:
        """Whether the audio goes to stdout."""
        return str(self.out) == PIPE

    @property
    def target(self) -> Path | None:
        """The file to write; None without one."""
        return None if self.piped else self.out

    @property
    def book(self) -> bool:
        """Whether the file is an audiobook of MPEG-4, with chapters."""
        return self.target is not None and self.target.suffix.lower() in BOOK_SUFFIXES

    @property
    def parts(self) -> Path | None:
        """The folder in which finished parts of the file are kept until it is complete."""
        return self.target and self.target.with_name(self.target.name + ".parts")
