"""`valle-serve speak`: speech of a text of any length to a file, a pipe or the speakers."""

import asyncio
import logging
import signal
import sys
from typing import get_args

from app.audio.formats import AudioFormat
from app.commands.errors import CommandError, Terminated
from app.commands.output import check_folder, print_status
from app.commands.speech.options import PIPE, SpeakOptions
from app.commands.speech.player import find_player
from app.commands.speech.subtitles import check_subtitles


class Speak(SpeakOptions):
    """Speak a text of any length to a file, or stream it to a pipe or the speakers.

    If interrupted, the same command continues where it stopped. With --trace, the report of the
    speech is written to a .json beside the file.
    """

    def cli_cmd(self) -> None:
        """Generate the speech and print a summary.

        Raises:
            CommandError: A flag or the model is invalid.
            KeyboardInterrupt: Interrupted; finished sentences are kept.
        """
        form = self._format()
        if self.play:
            find_player()
        if self.subtitles is not None:
            check_subtitles(self.subtitles)
            check_folder(self.subtitles, "subtitles")
        text = self._text()
        logging.basicConfig(level=logging.CRITICAL)  # errors are raised, and printed once
        if self.url is not None:
            from app.commands.speech.remote import speak_remotely

            if self.model is not None:
                raise CommandError(
                    "model: the server has its own model; leave out --model or --url"
                )
            speak_remotely(self.url, self, text, form)
            return
        if self.continue_from is not None:
            raise CommandError("continue-from: only a server has recent takes; add --url")
        if self.key is not None:
            raise CommandError("key: only a server takes a key; leave it out or add --url")
        from app.commands.speech.local import LocalSpeech
        from app.commands.speech.long_speech import split_pieces
        from models.text import TextError

        try:
            pieces = split_pieces(text)
        except TextError as error:
            raise CommandError(f"input: {error}") from error
        terminated = []

        async def speak_until_terminated() -> None:
            task = asyncio.current_task()
            assert task is not None

            def terminate() -> None:
                terminated.append(True)
                task.cancel()

            # Not by SIGINT, which a shell has processes in the background ignore.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
            await LocalSpeech(self, pieces, form).speak()

        try:
            asyncio.run(speak_until_terminated())
        except (KeyboardInterrupt, asyncio.CancelledError) as interrupt:
            if self.parts is not None and self.parts.is_dir():
                print_status(
                    f"finished sentences are kept in {self.parts};"
                    " run the same command again to continue"
                )
            if terminated:
                raise Terminated from interrupt
            raise

    def _text(self) -> str:
        """Return the text to speak."""
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
        forms["ogg"] = "opus"
        if self.response_format is None and suffix not in forms:
            names = ", ".join(get_args(AudioFormat))
            raise CommandError(f"out: .{suffix} is not a known format; choose one of {names}")
        return self.response_format or forms[suffix]
