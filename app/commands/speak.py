"""`valle-serve speak`: speech of a text of any length to a file, a pipe or the speakers.

A client of the service speaks it: of a server, or of the application in this process, whose engine
speaks a long text piece by piece.
"""

import asyncio
import logging
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from pydantic import PrivateAttr
from tqdm import tqdm

from app.audio.formats import FORMAT_ALIASES, AudioFormat
from app.commands.client import open_service
from app.commands.errors import CommandError, CommandFailed, Terminated
from app.commands.output import check_out, print_status
from app.commands.speech.documents.document import Chapter, Document, DocumentError
from app.commands.speech.options import PIPE, SpeakOptions
from app.commands.speech.player import find_player
from app.commands.speech.request import SpeechClient, report_of
from app.commands.speech.subtitles import check_subtitles
from app.settings import Settings

if TYPE_CHECKING:
    from app.commands.speech.journal import Journal
    from app.commands.speech.long_speech import LongSpeechEngine

_AUDIO_PROCESS_PIECES = 20  # a text with fewer pieces is spoken before that process has started
_LINE_EVERY_S = 60.0
_HEAD_BYTES = 262_144
_NAME_CHARS = 250
_READ_SUFFIXES = frozenset({".epub", ".htm", ".html", ".xhtml", ".md", ".srt", ".vtt", ".txt"})
_LONGEST_S = 1e6  # eleven days
_CHARS_AN_HOUR = 50_000  # of English prose
_FAR_TOO_LITTLE = 0.7  # of what is estimated
_LEAST_CHARS = 4096  # more than the texts that the engine tries at its start


class Speak(SpeakOptions):
    """Speak a text of any length to a file, or stream it to a pipe or the speakers.

    If interrupted, the same command continues where it stopped.
    """

    _is_kept: bool = PrivateAttr(default=False)
    """Whether finished sentences are written to the parts."""

    def cli_cmd(self) -> None:
        """Generate the speech and print a summary."""
        form = self._format()
        if self.play:
            find_player()
        if self.subtitles is not None:
            check_subtitles(self.subtitles)
        document = self._document()
        self._check_files()
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
            speak = self._speak_here if self.url is None else self._ask
            await speak(document, form)

        try:
            asyncio.run(speak_until_terminated())
        except (KeyboardInterrupt, asyncio.CancelledError) as interrupt:
            if self._is_kept:
                print_status(
                    f"finished sentences are kept in {self.parts};"
                    " run the same command again to continue"
                )
            if terminated:
                raise Terminated from interrupt
            raise

    async def _ask(self, document: Document, form: AudioFormat) -> None:
        async with self.open_client() as client:
            await SpeechClient(client, self, document, form).speak()

    async def _speak_here(self, document: Document, form: AudioFormat) -> None:
        """Have the service in this process speak."""
        text = document.text
        thoughts = self.thoughts == "speak"
        texts = [one.text for one in document.chapters] if self.book else [text]
        chapters = [_split(one, thoughts=thoughts) for one in texts]
        pieces = [*chain.from_iterable(chapters)]
        if len(pieces) > 1 and self.parts is not None:
            self._check_space(text)
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
        if len(pieces) < _AUDIO_PROCESS_PIECES:
            settings["voice_process"] = False
        with _status_line() as show:
            async with open_service(show, _long_engine, **settings) as (client, app):
                services = app.state.services
                engine: LongSpeechEngine = services.engine
                journal = engine.journal = self._journal(engine, services.settings, pieces)
                self._is_kept = journal is not None
                engine.pieces = pieces
                speech = SpeechClient(client, self, document, form)
                firsts = [*accumulate(map(len, chapters), initial=0)][:-1]
                speech.begins_s = lambda: [engine.begins_s[number] for number in firsts]
                try:
                    with _bar(pieces) as engine.progress:
                        await speech.speak()
                except CommandError as error:
                    raise engine.failure or error from error
                if journal is not None:
                    journal.drop()

    def _journal(
        self, engine: "LongSpeechEngine", settings: Settings, pieces: list[str]
    ) -> "Journal | None":
        """Return the journal of a file of several pieces."""
        from app.api.history.report import AskedSpeech
        from app.commands.speech.journal import Journal
        from app.storage.preset_files import read_presets
        from app.version import VERSION

        if self.parts is None or self.trace or self.subtitles or len(pieces) < 2:
            return None
        job = self.job_of("", "speak")
        preset = read_presets(settings.presets or None).get(job.params.preset)
        made_by = [VERSION, engine.info, dict(preset or {})]
        return Journal(self.parts, AskedSpeech(job, self), pieces, repr(made_by))

    def _check_files(self) -> None:
        """Check the files that will be written, and say which are replaced."""
        if (out := self.target) is not None:
            check_out(out, "out", length=_length_of(out))
            if self.trace:
                check_out(report_of(out), "out")
        if self.subtitles is not None:
            check_out(self.subtitles, "subtitles")

    def _check_space(self, text: str) -> None:
        """Raise CommandFailed if the disk is far too small for the parts of a text, or warn."""
        from app.commands.speech.journal import MB_AN_HOUR

        assert self.parts is not None
        hours = len(text) / _CHARS_AN_HOUR
        kept = sum(512 * one.stat().st_blocks for one in self.parts.glob("*"))
        needed_mb = MB_AN_HOUR * hours - kept / 1e6
        free_mb = shutil.disk_usage(self.parts.parent).free / 1e6
        said = (
            f"about {hours:.1f} hours of speech take {needed_mb:,.0f} MB in {self.parts} until the"
            f" file is written, and {free_mb:,.0f} MB are free"
        )
        if free_mb < _FAR_TOO_LITTLE * needed_mb:
            raise CommandFailed(f"out: {said}: free some, or name a file on another disk")
        if free_mb < needed_mb:
            print_status(f"warning: {said}")

    def _document(self) -> Document:
        """Return what is to be spoken."""
        if (self.input is None) == (self.file is None):
            raise CommandError("input: give either a text, or - for stdin, or a file")
        file = self.file or _named_file(self.input or "")
        if file is None:
            return Document((Chapter("", self._text()),))
        from app.commands.speech.documents.files import read_document

        try:
            return read_document(file.read_bytes(), file.name)
        except OSError as error:
            raise CommandError(f"file: {file}: {error.strerror}") from error
        except DocumentError as error:
            raise CommandError(f"file: {file}: {error}") from error

    def _text(self) -> str:
        try:
            return sys.stdin.read() if self.input == PIPE else str(self.input)
        except UnicodeDecodeError as error:
            raise CommandError(f"file: stdin is not UTF-8: {error.reason}") from error

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
        suffix = self.target.suffix.lower().removeprefix(".") or "wav"
        forms: dict[str, AudioFormat] = {form: form for form in get_args(AudioFormat)}
        forms |= FORMAT_ALIASES
        if self.book:
            if self.url is not None:
                raise CommandError(f"out: a server makes no .{suffix}: leave --url out")
            if self.response_format not in {None, "aac"}:
                raise CommandError(f"response_format: a .{suffix} has AAC: leave it out")
            return "aac"
        if self.response_format is None and suffix not in forms:
            names = ", ".join(get_args(AudioFormat))
            raise CommandError(f"out: .{suffix} is not a known format; choose one of {names}")
        return self.response_format or forms[suffix]


def _named_file(words: str) -> Path | None:
    """Return the file that is named in place of a text; None if it is a text."""
    if len(words.split()) != 1 and not Path(words[:_NAME_CHARS]).is_file():
        return None
    suffix = Path(words).suffix.lower()
    if len(words) > _NAME_CHARS or not suffix:
        return None
    if Path(words).is_file():
        return Path(words)
    if suffix in _READ_SUFFIXES and "://" not in words:
        raise CommandError(f"input: there is no file {words}")
    return None


def _length_of(out: Path) -> str:
    """Return how long a file of sound is, as (3:35); nothing if it is none."""
    if not out.is_file():
        return ""
    import av

    try:
        with av.open(str(out)) as file:
            seconds = round((file.duration or 0) / 1e6)
    except (OSError, ValueError):
        return ""
    return f" ({seconds // 60}:{seconds % 60:02})" if seconds else ""


def _split(text: str, *, thoughts: bool) -> list[str]:
    from app.commands.speech.long_speech import split_pieces
    from models.text import TextError

    try:
        return split_pieces(text, thoughts=thoughts)
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
