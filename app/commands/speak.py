"""`valle-serve speak`: a text of any length into a file of sound, a pipe or the speakers."""

import asyncio
import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import AliasChoices, Field, SecretStr, TypeAdapter, ValidationError, model_validator
from pydantic_settings import CliPositionalArg

from app.api.schemas import SpeechOptions
from app.audio.formats import AudioFormat
from app.commands.errors import CommandError
from app.commands.output import check_folder, say
from app.commands.speech.player import find_player
from samplers.knobs.params import SamplingParams

if TYPE_CHECKING:
    from app.audio.rendering import OutputOptions

_PIPE = "-"


class Speak(SpeechOptions):
    """Speak a text of any length into a file, or into a pipe or the speakers while it is spoken.

    What is interrupted goes on where it was when the same command is given again. With --trace,
    the account of it goes to a .json beside the file.
    """

    input: CliPositionalArg[str | None] = Field(
        None, description="What to say; - reads it from stdin."
    )
    file: Path | None = Field(
        None,
        validation_alias=AliasChoices("f", "file"),
        description="The text file to say, UTF-8; in place of the words themselves.",
    )
    out: Path | None = Field(
        None,
        validation_alias=AliasChoices("o", "out"),
        description="The file to write; - writes to stdout while it is spoken.",
    )
    play: bool = Field(
        False, description="Play it while it is spoken, beside or instead of a file."
    )
    url: str | None = Field(
        None,
        description="A running server, like http://127.0.0.1:8000, which has its model loaded;"
        " none loads it here.",
    )
    key: SecretStr | None = Field(None, description="Key of the server, if it asks for one.")
    model: str | None = Field(None, description="Model folder; none is what TTS_MODEL names.")
    response_format: AudioFormat | None = Field(
        None, description="Container of the sound; none is by the file's name, and wav to a pipe."
    )

    @model_validator(mode="before")
    @classmethod
    def _knobs_of_words(cls, given: Any) -> Any:
        """Read knobs as a request would hold them: a shell knows words and lists of words alone."""
        if not isinstance(given, dict):
            return given
        fields = SamplingParams.model_fields
        return {
            name: _meant(fields[name].annotation, value) if name in fields else value
            for name, value in given.items()
        }

    def cli_cmd(self) -> None:
        """Speak and say what was done.

        Raises:
            CommandError: A field or the model is wrong.
            KeyboardInterrupt: It was interrupted; what is spoken is kept.
        """
        form = self._form()
        if self.play:
            find_player()
        text = self._text()
        logging.basicConfig(level=logging.CRITICAL)  # what goes wrong is raised, and said once
        if self.url is not None:
            from app.commands.speech.remote import speak_by

            if self.model is not None:
                raise CommandError(
                    "model: a running server has its own; leave out --model or --url"
                )
            speak_by(self.url, self, text, form)
            return
        if self.key is not None:
            raise CommandError("key: nobody asks for one in process; leave it out or add --url")
        from app.commands.speech.local import LocalSpeech
        from app.commands.speech.reading import pieces_of
        from models.text import TextError

        try:
            pieces = pieces_of(text)
        except TextError as error:
            raise CommandError(f"input: {error}") from error
        try:
            asyncio.run(LocalSpeech(self, pieces, form).speak())
        except KeyboardInterrupt:
            if self.parts is not None and self.parts.is_dir():
                say(f"what is spoken is kept in {self.parts}: the same command goes on from there")
            raise

    @property
    def piped(self) -> bool:
        """Whether the sound goes to stdout."""
        return str(self.out) == _PIPE

    @property
    def target(self) -> Path | None:
        """The file to write, if there is one."""
        return None if self.piped else self.out

    @property
    def parts(self) -> Path | None:
        """Where what is spoken of a file is kept until all is."""
        return self.target and self.target.with_name(self.target.name + ".parts")

    def manner(self, form: AudioFormat) -> "OutputOptions":
        """Return what the sound is to be in a format."""
        from app.audio.rendering import OutputOptions

        return OutputOptions(form, self.speed, self.loudness_lufs)

    def _text(self) -> str:
        """Return what to say.

        Raises:
            CommandError: There is nothing, or twice.
        """
        if (self.input is None) == (self.file is None):
            raise CommandError("input: give either words, or - for stdin, or --file")
        try:
            if self.file is not None:
                return self.file.read_text(encoding="utf-8-sig")
            return sys.stdin.read() if self.input == _PIPE else str(self.input)
        except OSError as error:
            raise CommandError(f"file: {self.file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            name = self.file or "stdin"
            raise CommandError(f"file: {name} is no UTF-8: {error.reason}") from error

    def _form(self) -> AudioFormat:
        """Return the format to write, once it is known that there is a place for it.

        Raises:
            CommandError: There is none, or the file's name tells of no format.
        """
        if self.out is None and not self.play:
            raise CommandError("out: name a file with -o, - for stdout, or give --play")
        if self.target is None and self.trace:
            raise CommandError("trace: its account goes beside a file; name one with --out")
        if self.piped and sys.stdout.isatty():
            raise CommandError("out: this would be noise on a terminal: pipe it, or name a file")
        if self.target is None:
            return self.response_format or "wav"
        check_folder(self.target, "out")
        suffix = self.target.suffix.lower().removeprefix(".") or "wav"
        forms: dict[str, AudioFormat] = {form: form for form in get_args(AudioFormat)}
        forms["ogg"] = "opus"
        if self.response_format is None and suffix not in forms:
            names = ", ".join(get_args(AudioFormat))
            raise CommandError(f"out: .{suffix} is no format; choose one of {names}")
        return self.response_format or forms[suffix]


def _meant(kind: Any, value: object) -> object:
    """Return what the words of a flag mean where its type takes no words.

    ``--mirostat-mode 2`` arrives as ``"2"``, ``--sampler-order hf`` as ``["hf"]``.
    """
    adapter: TypeAdapter[object] = TypeAdapter(kind)
    readings = [value]
    if isinstance(value, str):
        readings += _as_json(value)
    elif isinstance(value, list) and len(value) == 1:
        readings += value
    elif isinstance(value, Mapping):
        return value
    for reading in readings:
        try:
            adapter.validate_python(reading)
        except ValidationError:
            continue
        return reading
    return value


def _as_json(text: str) -> list[object]:
    try:
        return [json.loads(text)]
    except ValueError:
        return []
