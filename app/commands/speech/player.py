"""Playback through an installed player program."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from app.audio.rendering import wav_header
from app.commands.errors import CommandError, CommandFailed

_RATE: Final = "{rate}"

# Mono, 16 bit, little-endian, from stdin; some need a WAV header.
_PLAYERS: Final[Mapping[str, Sequence[str]]] = {
    "pw-play": ("--raw", "--format=s16", f"--rate={_RATE}", "--channels=1", "-"),
    "paplay": ("--raw", "--format=s16le", f"--rate={_RATE}", "--channels=1"),
    "aplay": ("-q", "-t", "raw", "-f", "S16_LE", "-r", _RATE, "-c", "1", "-"),
    "play": ("-q", "-t", "raw", "-e", "signed", "-b", "16", "-r", _RATE, "-c", "1", "-"),
    "ffplay": ("-nodisp", "-autoexit", "-loglevel", "error", "-f", "wav", "-"),
}
_NEED_HEADER: Final = frozenset({"ffplay"})
_HIDE_FAILURE: Final = frozenset({"ffplay"})  # its status is 0 without a sound device
_NO_DEVICE: Final = re.compile(r"audio|alsa|device|sdl|pulse|pipewire|connection refused", re.I)
_FILE_PLAYER: Final = "afplay"  # of macOS; it does not read from a pipe


def find_player() -> str:
    """Return the name of the first installed player; raises CommandError without one."""
    names = [*_PLAYERS, _FILE_PLAYER]
    for name in names:
        if shutil.which(name):
            return name
    raise CommandError(
        f"play: no player is installed; install one of {', '.join(names)}, or name a file with -o"
    )


class Player:
    """Plays 16 bit samples as they come."""

    def __init__(self, name: str, sample_rate_hz: int) -> None:
        self._name = name
        self._file: IO[bytes] | None = None
        if name == _FILE_PLAYER:
            handle, self._wav_path = tempfile.mkstemp(suffix=".wav")
            self._file = os.fdopen(handle, "wb")
            self._file.write(wav_header(sample_rate_hz))
            return
        words = [word.format(rate=sample_rate_hz) for word in _PLAYERS[name]]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the player runs
        self._process = subprocess.Popen([name, *words], stdin=subprocess.PIPE, stderr=self._errors)
        if name in _NEED_HEADER:
            self.push(wav_header(sample_rate_hz))

    def push(self, pcm: bytes) -> None:
        """Play little-endian 16 bit samples."""
        if self._file is not None:
            self._file.write(pcm)
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pcm)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._failure() from error

    def close(self) -> None:
        """Wait until everything has been played."""
        if self._file is not None:
            self._file.close()
            status = subprocess.run([self._name, self._wav_path], check=False).returncode
            Path(self._wav_path).unlink()
        else:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            status = self._process.wait()
        failed = status or (self._name in _HIDE_FAILURE and self._said())
        failure = self._failure() if failed else None
        self._end()
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Stop at once; no-op after `close`."""
        if self._file is not None:
            self._file.close()
            Path(self._wav_path).unlink(missing_ok=True)
        elif self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        self._end()

    def _failure(self) -> CommandFailed:
        said = self._said()
        if _NO_DEVICE.search(said):
            return CommandFailed(
                f"play: no sound device, says {self._name} ({said.splitlines()[-1]});"
                " name a file with -o"
            )
        why = f": {said.splitlines()[-1]}" if said else ""
        return CommandFailed(f"play: {self._name} ended before everything was played{why}")

    def _end(self) -> None:
        """Drop what the player has written to stderr."""
        if self._file is None:
            self._errors.close()

    def _said(self) -> str:
        """Return what the player has written to stderr."""
        if self._file is not None or self._errors.closed:
            return ""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()
