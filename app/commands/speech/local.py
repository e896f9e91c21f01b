"""`valle-serve speak` without a server: loads the model in this process."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from importlib import import_module
from time import monotonic
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from tqdm import tqdm

from app.audio.formats import AudioFormat
from app.commands.errors import CommandError, CommandFailed
from app.commands.output import (
    print_status,
    warn_of_idle_knobs,
    warn_of_silence,
    write_file,
)
from app.commands.speech.options import SpeakOptions
from app.commands.speech.player import Player, find_player
from app.engine.errors import SpeechError
from app.engine.job import Samples
from app.imports import uncollected
from app.settings import Settings
from app.storage.preset_files import read_presets
from app.version import VERSION
from samplers.knobs.needs import doubts, idle_knobs

if TYPE_CHECKING:
    from app.commands.speech.journal import Journal
    from app.commands.speech.long_speech import LongSpeech
    from app.engine.engine import SpeechEngine

_SOUND_PROCESS_PIECES = 20  # a text with fewer pieces is spoken before that process has started
_POLL_S = 0.2
_TOLD_EVERY_S = 60.0  # where stderr is no terminal


class _AudioOutput(Protocol):
    """Where samples go while they are generated."""

    def push(self, samples: Samples) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class LocalSpeech:
    """One run of `speak` with an engine of its own."""

    def __init__(self, options: SpeakOptions, pieces: list[str], form: AudioFormat) -> None:
        self._options, self._pieces, self._form = options, pieces, form

    async def speak(self) -> None:
        """Load the model and speak all pieces."""
        options, pieces = self._options, self._pieces
        longest = max(map(len, pieces), default=0)
        settings = Settings() if options.model is None else Settings(model=options.model)
        # The limit on the text's length protects a shared server; it has no meaning here.
        settings = settings.model_copy(
            update={
                "max_text_chars": max(longest, settings.max_text_chars),
                "text_process": False,  # nobody else speaks
                "voice_process": settings.voice_process and len(pieces) >= _SOUND_PROCESS_PIECES,
            }
        )
        async with _engine(settings) as engine:
            from app.commands.speech.long_speech import LongSpeech

            journal = self._journal(engine, settings)
            speech = LongSpeech(engine, options.job_of("", "speak"), pieces, journal)
            try:
                await self._write_audio(speech)
            except SpeechError as error:
                place = f"sentence {speech.begun}: " if len(pieces) > 1 else ""
                kind = CommandError if error.param else CommandFailed
                raise kind(f"{error.param or 'speak'}: {place}{error.message}") from error
            if journal is not None:
                journal.drop()

    def _journal(self, engine: "SpeechEngine", settings: Settings) -> "Journal | None":
        """Return the journal of a file of several pieces."""
        from app.commands.speech.journal import Journal

        options = self._options
        if options.parts is None or options.trace or options.subtitles or len(self._pieces) < 2:
            return None
        job = options.job_of("", "speak")
        preset = read_presets(settings.presets or None).get(job.params.preset)
        made_by = [VERSION, engine.info, dict(preset or {})]
        return Journal(options.parts, job, self._pieces, repr(made_by))

    async def _write_audio(self, speech: "LongSpeech") -> None:
        """Write the samples to every output as they come, then print a summary."""
        outputs: list[_AudioOutput] = []
        try:
            async for samples, rate_hz in _with_progress(speech):
                if not outputs:
                    outputs = list(self._open_outputs(rate_hz))
                for output in outputs:
                    output.push(samples)
            self._write_report(speech)
            self._write_subtitles(speech)
            for output in outputs:
                output.close()
        finally:
            for output in outputs:
                output.abandon()
        result = speech.result()
        warn_of_idle_knobs(idle_knobs(result.params, self._options.model_fields_set))
        for doubt in doubts(result.params):
            print_status(f"warning: {doubt}")
        warn_of_silence([one.finish_reason for one in result.utterances if one.phonemes])
        if self._options.piped:
            return
        audio_s, work_s = result.audio_s / self._options.speed, result.timings.total_s
        print_status(
            f"{self._options.target or 'played'}: {audio_s:.2f} s of speech in {work_s:.2f} s,"
            f" voice {result.voice}, seed {result.seed}, finish reason {result.finish_reason}"
        )

    def _write_report(self, speech: "LongSpeech") -> None:
        """Write the report beside the file, if a trace was requested."""
        from app.api.reports.writer import report_json

        options = self._options
        if options.trace and options.target is not None:
            job = options.job_of(" ".join(speech.pieces), "speak")
            report = report_json(job, speech.result())
            beside = options.target.with_name(options.target.name + ".json")
            write_file(beside, report.encode(), "out")

    def _write_subtitles(self, speech: "LongSpeech") -> None:
        """Write the subtitles, if they were requested."""
        from app.commands.speech.subtitles import subtitles

        options = self._options
        if (path := options.subtitles) is not None:
            spoken = speech.result().utterances
            words = [word.at_speed(options.speed) for one in spoken for word in one.words or ()]
            write_file(
                path, subtitles(words, path.suffix, " ".join(speech.pieces)).encode(), "subtitles"
            )

    def _open_outputs(self, rate_hz: int) -> Iterator[_AudioOutput]:
        """Yield the outputs that the command line names."""
        from app.commands.speech.sound_file import SoundFile

        options = self._options
        if options.target is not None:
            yield SoundFile(options.target, options.output_options(self._form), rate_hz)
        elif options.piped:
            yield _StdoutOutput(options, self._form, rate_hz)
        if options.play:
            yield _PlayerOutput(options, rate_hz)


class _StdoutOutput:
    """Streams encoded audio to stdout."""

    def __init__(self, options: SpeakOptions, form: AudioFormat, rate_hz: int) -> None:
        from app.audio.rendering import StreamRenderer

        self._renderer = StreamRenderer(options.output_options(form), rate_hz)

    def push(self, samples: Samples) -> None:
        self._write(self._renderer.push(samples))

    def close(self) -> None:
        self._write(self._renderer.close())

    def abandon(self) -> None:
        pass

    def _write(self, part: bytes) -> None:
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()


class _PlayerOutput:
    """Streams audio to a player program."""

    def __init__(self, options: SpeakOptions, rate_hz: int) -> None:
        from app.audio.rendering import StreamRenderer

        self._renderer = StreamRenderer(options.output_options("pcm"), rate_hz)
        self._player = Player(find_player(), rate_hz)

    def push(self, samples: Samples) -> None:
        self._player.push(self._renderer.push(samples))

    def close(self) -> None:
        self._player.push(self._renderer.close())
        self._player.close()

    def abandon(self) -> None:
        self._player.abandon()


@asynccontextmanager
async def _engine(settings: Settings) -> "AsyncIterator[SpeechEngine]":
    """Enter an engine that is ready, with a status line on the terminal while it loads."""
    with _status_line() as show:
        loading = asyncio.create_task(asyncio.to_thread(_import_main))
        while not loading.done():
            show("loading")
            await asyncio.wait({loading}, timeout=_POLL_S)
        async with loading.result().create_engine(settings) as engine:
            waiting = asyncio.create_task(engine.wait_ready())
            while not waiting.done():
                show(_loading_stage(engine))
                await asyncio.wait({waiting}, timeout=_POLL_S)
            show("")
            try:
                await waiting
            except SpeechError as error:
                raise CommandError(f"model: {engine.status.error or error.message}") from error
            yield engine


def _import_main() -> ModuleType:
    with uncollected():
        return import_module("app.main")


def _loading_stage(engine: "SpeechEngine") -> str:
    """Return what an engine that is not ready yet is doing."""
    from models.int8.first_start import compilations

    return "compiling, at the first start only" if compilations() else engine.status.state


@contextmanager
def _status_line() -> Iterator[Callable[[str], None]]:
    """Give a function that shows a text and the elapsed time on the terminal; "" clears it."""
    started_s = monotonic()
    with tqdm(bar_format="{desc}", disable=None, leave=False) as line:

        def show(text: str) -> None:
            line.set_description_str(text and f"{text} ({monotonic() - started_s:.0f} s)")

        yield show


async def _with_progress(speech: "LongSpeech") -> AsyncIterator[tuple[Samples, int]]:
    """Yield samples ``[N]`` and their rate in Hz, and tell the progress on stderr."""
    began_s, told_s, audio_s = monotonic(), monotonic(), 0.0
    with tqdm(bar_format="{desc}", disable=None, leave=False) as line:

        async def show() -> None:
            nonlocal told_s
            while True:
                told = progress_told(speech, audio_s, monotonic() - began_s)
                line.set_description_str(told)
                if line.disable and monotonic() - told_s >= _TOLD_EVERY_S:
                    told_s = monotonic()
                    print_status(told)
                await asyncio.sleep(_POLL_S)

        showing = asyncio.create_task(show())
        try:
            async with aclosing(speech.chunks()) as chunks:
                async for chunk in chunks:
                    audio_s += len(chunk.samples) / chunk.sample_rate_hz
                    yield chunk.samples, chunk.sample_rate_hz
        finally:
            showing.cancel()


def progress_told(speech: "LongSpeech", audio_s: float, took_s: float) -> str:
    """Return how far a speech is: sentences, words, sound so far, and what is left.

    Args:
        audio_s: Seconds of sound so far.
        took_s: Seconds since it began.
    """
    pieces = speech.pieces
    done = max(0, speech.begun - 1)
    words = [len(piece.split()) for piece in pieces]
    spoken = sum(words[speech.restored : done])
    left_s = took_s * sum(words[done:]) / spoken if spoken else None
    left = "" if left_s is None else f", {max(1, round(left_s / 60))} min left"
    minutes, seconds = divmod(round(audio_s), 60)
    return (
        f"{done} of {len(pieces)} sentences, {sum(words[:done]):,} of {sum(words):,} words,"
        f" {minutes}:{seconds:02} of sound{left}"
    )
