"""`valle-serve speak`: a text of any length into a file of sound or a pipe, in this process."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from pydantic import AliasChoices, Field
from pydantic_settings import CliPositionalArg
from tqdm import tqdm

from app.api.formats import AudioFormat
from app.api.schemas import SpeechOptions
from app.commands.errors import CommandError, CommandFailed
from app.commands.output import check_folder, write_whole
from app.engine.errors import SpeechError
from app.engine.job import Samples, SpeechJob
from app.preset_files import read_presets
from app.settings import Settings

if TYPE_CHECKING:
    from app.api.rendering import Manner
    from app.commands.journal import Journal
    from app.commands.reading import Reading
    from app.engine.engine import SpeechEngine

_PIPE = "-"
_WORTH_A_PROCESS = 20  # sentences


class Speak(SpeechOptions):
    """Speak a text of any length into a file, or into a pipe while it is spoken.

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
    model: str | None = Field(None, description="Model folder; none is what TTS_MODEL names.")
    response_format: AudioFormat | None = Field(
        None, description="Container of the sound; none is by the file's name, and wav to a pipe."
    )
    out: Path = Field(
        validation_alias=AliasChoices("o", "out"),
        description="The file to write; - writes to stdout while it is spoken.",
    )

    def cli_cmd(self) -> None:
        """Speak and say what was done.

        Raises:
            CommandError: A field or the model is wrong.
            KeyboardInterrupt: It was interrupted; what is spoken is kept.
        """
        from app.commands.reading import pieces_of
        from models.text import TextError

        form = self._form()
        try:
            text = pieces_of(self._text())
        except TextError as error:
            raise CommandError(f"input: {error}") from error
        logging.basicConfig(level=logging.CRITICAL)  # what goes wrong is raised, and said once
        try:
            asyncio.run(self._speak(text, form))
        except KeyboardInterrupt:
            if (folder := self._folder()).is_dir():
                _say(f"what is spoken is kept in {folder}: the same command goes on from there")
            raise

    @property
    def piped(self) -> bool:
        """Whether the sound goes to stdout."""
        return str(self.out) == _PIPE

    def _folder(self) -> Path:
        """Return where what is spoken of a file is kept until all is."""
        return self.out.with_name(self.out.name + ".parts")

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
        if self.piped:
            if self.trace:
                raise CommandError("trace: its account goes beside a file; name one with --out")
            if sys.stdout.isatty():
                raise CommandError(
                    "out: this would be noise on a terminal: pipe it, or name a file"
                )
            return self.response_format or "wav"
        check_folder(self.out, "out")
        suffix = self.out.suffix.lower().removeprefix(".") or "wav"
        forms: dict[str, AudioFormat] = {form: form for form in get_args(AudioFormat)}
        forms["ogg"] = "opus"
        if self.response_format is None and suffix not in forms:
            names = ", ".join(get_args(AudioFormat))
            raise CommandError(f"out: .{suffix} is no format; choose one of {names}")
        return self.response_format or forms[suffix]

    def _manner(self, form: AudioFormat) -> "Manner":
        from app.api.rendering import Manner

        return Manner(form, self.speed, self.loudness_lufs)

    async def _speak(self, text: list[str], form: AudioFormat) -> None:
        """Speak the pieces of a text.

        Raises:
            CommandError: The model cannot be loaded, a piece cannot be spoken or not be written.
        """
        from app.commands.reading import Reading

        longest = max(map(len, text), default=0)
        settings = Settings() if self.model is None else Settings(model=self.model)
        # The limit is for those who share a server. And a process of its own for the sound takes
        # longer to start than a few sentences to speak.
        settings = settings.model_copy(
            update={
                "max_text_chars": max(longest, settings.max_text_chars),
                "voice_process": settings.voice_process and len(text) >= _WORTH_A_PROCESS,
            }
        )
        job = self.job_of("", "speak")
        async with _engine(settings) as engine:
            journal = self._journal(engine, settings, job, text)
            reading = Reading(engine, job, text, journal)
            try:
                await (self._pipe(reading, form) if self.piped else self._write(reading, form))
            except SpeechError as error:
                place = f"sentence {reading.begun}: " if len(text) > 1 else ""
                kind = CommandError if error.param else CommandFailed
                raise kind(f"{error.param or 'speak'}: {place}{error.message}") from error
            if journal is not None:
                journal.drop()

    def _journal(
        self, engine: "SpeechEngine", settings: Settings, job: SpeechJob, text: list[str]
    ) -> "Journal | None":
        """Return where what is spoken is kept: nowhere for a pipe, a trace or a single piece.

        Raises:
            CommandError: There are parts of another speech.
        """
        from app.commands.journal import Journal

        if self.piped or self.trace or len(text) < 2:
            return None
        preset = read_presets(settings.presets or None).get(job.params.preset)
        made_by = [version("valle-serve"), engine.info, dict(preset or {})]
        return Journal(self._folder(), job, text, repr(made_by))

    async def _pipe(self, reading: "Reading", form: AudioFormat) -> None:
        """Write the sound to stdout as it comes."""
        from app.api.rendering import Rendering

        rendering = None
        async for samples, rate_hz in _watched(reading):
            rendering = rendering or Rendering(self._manner(form), rate_hz)
            _put(rendering.push(samples))
        if rendering is not None:
            _put(rendering.close())

    async def _write(self, reading: "Reading", form: AudioFormat) -> None:
        """Write the sound to the file, and with `trace` its account beside it; say what it is."""
        from app.api.reports import report_json
        from app.commands.sound_file import SoundFile

        sink = None
        try:
            async for samples, rate_hz in _watched(reading):
                sink = sink or SoundFile(self.out, self._manner(form), rate_hz)
                sink.push(samples)
            result = reading.result()
            if self.trace:
                job = self.job_of(" ".join(reading.text), "speak")
                report = report_json(job, result)
                write_whole(self.out.with_name(self.out.name + ".json"), report.encode(), "out")
            if sink is not None:
                sink.close()
        finally:
            if sink is not None:
                sink.abandon()
        audio_s, work_s = result.audio_s / self.speed, result.timings.total_s
        _say(
            f"{self.out}: {audio_s:.2f} s of speech in {work_s:.2f} s,"
            f" voice {result.voice}, seed {result.seed}, ended by {result.finish_reason}"
        )


@asynccontextmanager
async def _engine(settings: Settings) -> "AsyncIterator[SpeechEngine]":
    """Give an engine that is ready.

    Raises:
        CommandError: The model cannot be loaded.
    """
    from app.main import create_engine

    async with create_engine(settings) as engine:
        try:
            await engine.wait_ready()
        except SpeechError as error:
            raise CommandError(f"model: {engine.status.error or error.message}") from error
        yield engine


async def _watched(reading: "Reading") -> AsyncIterator[tuple[Samples, int]]:
    """Yield samples and their rate, with a bar on the terminal if somebody watches."""
    with tqdm(total=len(reading.text), unit=" sentences", disable=None, leave=False) as bar:

        async def show() -> None:
            while True:
                bar.set_postfix_str(f"{reading.progress.frames} frames", refresh=False)
                bar.update(max(0, reading.begun - 1) - bar.n)
                await asyncio.sleep(0.2)

        showing = asyncio.create_task(show())
        try:
            async with aclosing(reading.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk.samples, chunk.sample_rate_hz
        finally:
            showing.cancel()


def _put(part: bytes) -> None:
    sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)
