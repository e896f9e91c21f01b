"""`valle-serve speak` in this process: the model is loaded, and a text read piece by piece."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from importlib import import_module
from importlib.metadata import version
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from tqdm import tqdm

from app.audio.formats import AudioFormat
from app.commands.errors import CommandError, CommandFailed
from app.commands.output import say, write_whole
from app.commands.speech.player import Player, find_player
from app.engine.errors import SpeechError
from app.engine.job import Samples
from app.preset_files import read_presets
from app.settings import Settings

if TYPE_CHECKING:
    from app.commands.speak import Speak
    from app.commands.speech.journal import Journal
    from app.commands.speech.reading import Reading
    from app.engine.engine import SpeechEngine

_WORTH_A_PROCESS = 20  # sentences
_LOOK_S = 0.2


class _Outlet(Protocol):
    """Where sound goes while it is made."""

    def push(self, samples: Samples) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class LocalSpeech:
    """One run of the command."""

    def __init__(self, command: "Speak", text: list[str], form: AudioFormat) -> None:
        """Take what is asked for.

        Args:
            command: How to speak, and where to.
            text: Its pieces.
            form: Of the file, or of what goes to stdout.
        """
        self._command, self._text, self._form = command, text, form

    async def speak(self) -> None:
        """Speak the pieces of a text.

        Raises:
            CommandError: The model cannot be loaded, a piece cannot be spoken or not be written.
        """
        command, text = self._command, self._text
        longest = max(map(len, text), default=0)
        settings = Settings() if command.model is None else Settings(model=command.model)
        # The limit is for those who share a server. And a process of its own for the sound takes
        # longer to start than a few sentences to speak.
        settings = settings.model_copy(
            update={
                "max_text_chars": max(longest, settings.max_text_chars),
                "voice_process": settings.voice_process and len(text) >= _WORTH_A_PROCESS,
            }
        )
        async with _engine(settings) as engine:
            from app.commands.speech.reading import Reading

            journal = self._journal(engine, settings)
            reading = Reading(engine, command.job_of("", "speak"), text, journal)
            try:
                await self._read(reading)
            except SpeechError as error:
                place = f"sentence {reading.begun}: " if len(text) > 1 else ""
                kind = CommandError if error.param else CommandFailed
                raise kind(f"{error.param or 'speak'}: {place}{error.message}") from error
            if journal is not None:
                journal.drop()

    def _journal(self, engine: "SpeechEngine", settings: Settings) -> "Journal | None":
        """Return where what is spoken is kept: only for a file of several pieces without a trace.

        Raises:
            CommandError: There are parts of another speech.
        """
        from app.commands.speech.journal import Journal

        command = self._command
        if command.parts is None or command.trace or len(self._text) < 2:
            return None
        job = command.job_of("", "speak")
        preset = read_presets(settings.presets or None).get(job.params.preset)
        made_by = [version("valle-serve"), engine.info, dict(preset or {})]
        return Journal(command.parts, job, self._text, repr(made_by))

    async def _read(self, reading: "Reading") -> None:
        """Send the sound where it is to go, and say what it is."""
        outlets: list[_Outlet] = []
        try:
            async for samples, rate_hz in _watched(reading):
                if not outlets:
                    outlets = list(self._outlets(rate_hz))
                for outlet in outlets:
                    outlet.push(samples)
            self._account(reading)
            for outlet in outlets:
                outlet.close()
        finally:
            for outlet in outlets:
                outlet.abandon()
        if self._command.piped:
            return
        result = reading.result()
        audio_s, work_s = result.audio_s / self._command.speed, result.timings.total_s
        say(
            f"{self._command.target or 'played'}: {audio_s:.2f} s of speech in {work_s:.2f} s,"
            f" voice {result.voice}, seed {result.seed}, ended by {result.finish_reason}"
        )

    def _account(self, reading: "Reading") -> None:
        """Write what `trace` asks for beside the file."""
        from app.api.reports.writing import report_json

        command = self._command
        if command.trace and command.target is not None:
            job = command.job_of(" ".join(reading.text), "speak")
            report = report_json(job, reading.result())
            beside = command.target.with_name(command.target.name + ".json")
            write_whole(beside, report.encode(), "out")

    def _outlets(self, rate_hz: int) -> Iterator[_Outlet]:
        from app.commands.speech.sound_file import SoundFile

        command = self._command
        if command.target is not None:
            yield SoundFile(command.target, command.manner(self._form), rate_hz)
        elif command.piped:
            yield _Pipe(command, self._form, rate_hz)
        if command.play:
            yield _Speakers(command, rate_hz)


class _Pipe:
    """Stdout, while the sound is made."""

    def __init__(self, command: "Speak", form: AudioFormat, rate_hz: int) -> None:
        from app.audio.rendering import Rendering

        self._rendering = Rendering(command.manner(form), rate_hz)

    def push(self, samples: Samples) -> None:
        self._put(self._rendering.push(samples))

    def close(self) -> None:
        self._put(self._rendering.close())

    def abandon(self) -> None:
        pass

    def _put(self, part: bytes) -> None:
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()


class _Speakers:
    """A player, while the sound is made."""

    def __init__(self, command: "Speak", rate_hz: int) -> None:
        from app.audio.rendering import Rendering

        self._rendering = Rendering(command.manner("pcm"), rate_hz)
        self._player = Player(find_player(), rate_hz)

    def push(self, samples: Samples) -> None:
        self._player.push(self._rendering.push(samples))

    def close(self) -> None:
        self._player.push(self._rendering.close())
        self._player.close()

    def abandon(self) -> None:
        self._player.abandon()


@asynccontextmanager
async def _engine(settings: Settings) -> "AsyncIterator[SpeechEngine]":
    """Give an engine that is ready, and tell who watches that it takes its time.

    Raises:
        CommandError: The model cannot be loaded.
    """
    with _telling() as tell:
        loading = asyncio.create_task(asyncio.to_thread(import_module, "app.main"))
        while not loading.done():
            tell("loading")
            await asyncio.wait({loading}, timeout=_LOOK_S)
        async with loading.result().create_engine(settings) as engine:
            waiting = asyncio.create_task(engine.wait_ready())
            while not waiting.done():
                tell(_stage(engine))
                await asyncio.wait({waiting}, timeout=_LOOK_S)
            tell("")
            try:
                await waiting
            except SpeechError as error:
                raise CommandError(f"model: {engine.status.error or error.message}") from error
            yield engine


def _stage(engine: "SpeechEngine") -> str:
    """Return what an engine that is not ready yet does."""
    from models.int8.first_start import compilations

    return "compiling, at the first start only" if compilations() else engine.status.state


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """Give what shows on a terminal what is done, and for how long; "" shows nothing more."""
    started_s = monotonic()
    with tqdm(bar_format="{desc}", disable=None, leave=False) as line:

        def tell(doing: str) -> None:
            line.set_description_str(doing and f"{doing} ({monotonic() - started_s:.0f} s)")

        yield tell


async def _watched(reading: "Reading") -> AsyncIterator[tuple[Samples, int]]:
    """Yield samples and their rate, with a bar on the terminal if somebody watches."""
    with tqdm(total=len(reading.text), unit=" sentences", disable=None, leave=False) as bar:

        async def show() -> None:
            while True:
                bar.set_postfix_str(f"{reading.progress.frames} frames", refresh=False)
                bar.update(max(0, reading.begun - 1) - bar.n)
                await asyncio.sleep(_LOOK_S)

        showing = asyncio.create_task(show())
        try:
            async with aclosing(reading.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk.samples, chunk.sample_rate_hz
        finally:
            showing.cancel()
