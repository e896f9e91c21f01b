"""Sound on this machine's speakers, through whichever player is installed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from app.audio.wav import wav_header
from app.commands.errors import CommandError, CommandFailed

_RATE: Final = "{rate}"

# Mono of 16 bits, little-endian, from stdin; what needs a head to know that gets that of a WAV.
_PLAYERS: Final[Mapping[str, Sequence[str]]] = {
    "pw-play": ("--raw", "--format=s16", f"--rate={_RATE}", "--channels=1", "-"),
    "paplay": ("--raw", "--format=s16le", f"--rate={_RATE}", "--channels=1"),
    "aplay": ("-q", "-t", "raw", "-f", "S16_LE", "-r", _RATE, "-c", "1", "-"),
    "ffplay": ("-nodisp", "-autoexit", "-loglevel", "error", "-f", "wav", "-"),
    "play": ("-q", "-t", "raw", "-e", "signed", "-b", "16", "-r", _RATE, "-c", "1", "-"),
}
_WITH_HEAD: Final = frozenset({"ffplay"})
_OF_FILES: Final = "afplay"  # that of macOS, which reads no pipe


def find_player() -> str:
    """Return the name of a player that is installed.

    Raises:
        CommandError: There is none.
    """
    names = [*_PLAYERS, _OF_FILES]
    for name in names:
        if shutil.which(name):
            return name
    raise CommandError(
        f"play: no player is installed; install one of {', '.join(names)}, or name a file with -o"
    )


class Player:
    """Plays samples of 16 bits while they come."""

    def __init__(self, name: str, sample_rate_hz: int) -> None:
        """Start a player.

        Args:
            name: As `find_player` gives it.
            sample_rate_hz: Of the samples; mono.
        """
        self._name = name
        self._file: IO[bytes] | None = None
        if name == _OF_FILES:
            handle, self._heard = tempfile.mkstemp(suffix=".wav")
            self._file = os.fdopen(handle, "wb")
            self._file.write(wav_header(sample_rate_hz))
            return
        words = [word.format(rate=sample_rate_hz) for word in _PLAYERS[name]]
        self._process = subprocess.Popen([name, *words], stdin=subprocess.PIPE)
        if name in _WITH_HEAD:
            self.push(wav_header(sample_rate_hz))

    def push(self, pcm: bytes) -> None:
        """Take the next samples.

        Raises:
            CommandFailed: The player is gone.
        """
        if self._file is not None:
            self._file.write(pcm)
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pcm)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._broke() from error

    def close(self) -> None:
        """Wait until all is heard.

        Raises:
            CommandFailed: It was not.
        """
        if self._file is not None:
            self._file.close()
            status = subprocess.run([self._name, self._heard], check=False).returncode
            Path(self._heard).unlink()
        else:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            status = self._process.wait()
        if status:
            raise self._broke()

    def abandon(self) -> None:
        """Be silent at once; after `close` there is nothing to do."""
        if self._file is not None:
            self._file.close()
            Path(self._heard).unlink(missing_ok=True)
        elif self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def _broke(self) -> CommandFailed:
        return CommandFailed(f"play: {self._name} ended before all was heard")
