"""`valle-serve speak`: speech of a text of any length to a file, a pipe or the speakers.

A client of the service speaks it: of a server, or of the application in this process, whose engine
speaks a long text piece by piece.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from tqdm import tqdm

from app.audio.formats import FORMAT_ALIASES, AudioFormat
from app.commands.client import open_service
from app.commands.errors import CommandError, Terminated
from app.commands.output import check_folder, print_status
from app.commands.speech.options import PIPE, SpeakOptions
from app.commands.speech.player import find_player
from app.commands.speech.request import SpeechClient
from app.commands.speech.subtitles import check_subtitles
from app.settings import Settings

if TYPE_CHECKING:
    from app.commands.speech.journal import Journal
    from app.commands.speech.long_speech import LongSpeechEngine

_SOUND_PROCESS_PIECES = 20  # a text with fewer pieces is spoken before that process has started
_LINE_EVERY_S = 60.0
_HEAD_BYTES = 262_144
_LONGEST_S = 1e6  # eleven days
_LEAST_CHARS = 4096  # more than the texts that the engine tries at its start


class Speak(SpeakOptions):
    """Speak a text of any length to a file, or stream it to a pipe or the speakers.

    If interrupted, the same command continues where it stopped. With --trace, the report of the
    speech is written to a .json beside the file.
    """

    def cli_cmd(self) -> None:
        """Generate the speech and print a summary."""
        form = self._format()
        if self.play:
            find_player()
        if self.subtitles is not None:
            check_subtitles(self.subtitles)
            check_folder(self.subtitles, "subtitles")
        text = self._text()
        logging.basicConfig(level=logging.CRITICAL)  # errors are raised, and printed once
        if self.url is None and self.continue_from is not None:
            raise CommandError("continue-from: only a server has recent takes; add --url")
        self.check_server(self.model)
        terminated = []

        async def speak_until_terminated() -> None:
            task = asyncio.current_task()
            assert task is not None

            def terminate() -> None:
                terminated.append(True)
                task.cancel()

            # Not by SIGINT, which a shell has processes in the background ignore.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
            await (self._speak_here(text, form) if self.url is None else self._ask(text, form))

        try:
            asyncio.run(speak_until_terminated())
        except (KeyboardInterrupt, asyncio.CancelledError) as interrupt:
            if self.url is None and self.parts is not None and self.parts.is_dir():
                print_status(
                    f"finished sentences are kept in {self.parts};"
                    " run the same command again to continue"
                )
            if terminated:
                raise Terminated from interrupt
            raise

    async def _ask(self, text: str, form: AudioFormat) -> None:
        async with self.open_client() as client:
            await SpeechClient(client, self, text, form).speak()

    async def _speak_here(self, text: str, form: AudioFormat) -> None:
        """Have the service in this process speak."""
        pieces = _split(text)
        settings: dict[str, Any] = {
            # These limits protect a server that is shared.
            "max_text_chars": max(_LEAST_CHARS, len(text)),
            "max_audio_s": _LONGEST_S,
            "max_body_bytes": _HEAD_BYTES + 12 * len(text),
            "keep": 1,
            "text_process": False,  # nobody else speaks
        }
        if self.model is not None:
            settings["model"] = self.model
        if len(pieces) < _SOUND_PROCESS_PIECES:
            settings["voice_process"] = False
        with _status_line() as show:
            async with open_service(show, _long_engine, **settings) as (client, app):
                engine: LongSpeechEngine = app.state.engine
                journal = engine.journal = self._journal(engine, app.state.settings, pieces)
                with _bar(pieces) as engine.progress:
                    await SpeechClient(client, self, text, form).speak()
                if journal is not None:
                    journal.drop()

    def _journal(
        self, engine: "LongSpeechEngine", settings: Settings, pieces: list[str]
    ) -> "Journal | None":
        """Return the journal of a file of several pieces."""
        from app.commands.speech.journal import Journal
        from app.storage.preset_files import read_presets
        from app.version import VERSION

        if self.parts is None or self.trace or self.subtitles or len(pieces) < 2:
            return None
        job = self.job_of("", "speak")
        preset = read_presets(settings.presets or None).get(job.params.preset)
        made_by = [VERSION, engine.info, dict(preset or {})]
        return Journal(self.parts, job, pieces, repr(made_by))

    def _text(self) -> str:
        if (self.input is None) == (self.file is None):
            raise CommandError("input: give either a text, or - for stdin, or --file")
        try:
            if self.file is not None:
                return self.file.read_text(encoding="utf-8-sig")
            return sys.stdin.read() if self.input == PIPE else str(self.input)
        except OSError as error:
            raise CommandError(f"file: {self.file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            name = self.file or "stdin"
            raise CommandError(f"file: {name} is not UTF-8: {error.reason}") from error

    def _format(self) -> AudioFormat:
        """Check where the audio goes, and return its format."""
        if self.out is None and not self.play:
            raise CommandError("out: name a file with -o, or - for stdout, or give --play")
        if self.target is None and self.trace:
            raise CommandError("trace: the report is written beside a file; name one with --out")
        if self.piped and sys.stdout.isatty():
            raise CommandError("out: stdout is a terminal; pipe it or name a file")
        if self.target is None:
            return self.response_format or "wav"
        check_folder(self.target, "out")
        suffix = self.target.suffix.lower().removeprefix(".") or "wav"
        forms: dict[str, AudioFormat] = {form: form for form in get_args(AudioFormat)}
        forms |= FORMAT_ALIASES
        if self.response_format is None and suffix not in forms:
            names = ", ".join(get_args(AudioFormat))
            raise CommandError(f"out: .{suffix} is not a known format; choose one of {names}")
        return self.response_format or forms[suffix]


def _split(text: str) -> list[str]:
    from app.commands.speech.long_speech import split_pieces
    from models.text import TextError

    try:
        return split_pieces(text)
    except TextError as error:
        raise CommandError(f"input: {error}") from error


def _long_engine(settings: Settings) -> "LongSpeechEngine":
    from app.commands.speech.long_speech import LongSpeechEngine
    from app.main import model_loader

    return LongSpeechEngine(model_loader(settings), settings)


@contextmanager
def _status_line() -> Iterator[Callable[[str], None]]:
    """Give a function that shows a text and the elapsed time on the terminal; "" clears it."""
    started_s = monotonic()
    with tqdm(bar_format="{desc}", disable=None, leave=False) as line:

        def show(text: str) -> None:
            line.set_description_str(text and f"{text} ({monotonic() - started_s:.0f} s)")

        yield show


def _bar(pieces: Sequence[str]) -> "tqdm[NoReturn]":
    """Return the progress bar of a text's words; a line a minute where stderr is no terminal."""
    options: dict[str, Any] = {}
    if not sys.stderr.isatty():
        every_s = _LINE_EVERY_S
        options = {"delay": every_s, "mininterval": every_s, "maxinterval": every_s, "ncols": 80}
        options["bar_format"] = "{l_bar}{bar}{r_bar}\n"
    words = sum(len(piece.split()) for piece in pieces)
    return tqdm(total=words, unit=" words", smoothing=0, leave=False, **options)
