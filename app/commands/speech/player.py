"""Playback through an installed player program."""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO, Final

from app.audio.containers import wav_header
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
_FILE_PLAYER: Final = "afplay"  # of macOS; it does not read from a pipe
_NEED_HEADER: Final = frozenset({"ffplay", _FILE_PLAYER})
_HIDE_FAILURE: Final = frozenset({"ffplay"})  # its status is 0 without a sound device
_NO_DEVICE: Final = re.compile(r"audio|alsa|device|sdl|pulse|pipewire|connection refused", re.I)


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
        self._held = ExitStack()  # what ends with the player
        self._errors = self._held.enter_context(TemporaryFile())  # noqa: SIM115 - `close` closes it
        self._process: subprocess.Popen[bytes] | None = None
        if name == _FILE_PLAYER:
            file = NamedTemporaryFile(suffix=".wav")  # noqa: SIM115 - so is this
            self._input: IO[bytes] = self._held.enter_context(file)
        else:
            words = [name, *(word.format(rate=sample_rate_hz) for word in _PLAYERS[name])]
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=self._errors)
            self._process = self._held.enter_context(process)
            assert process.stdin is not None
            self._input = process.stdin
        if name in _NEED_HEADER:
            self.push(wav_header(sample_rate_hz))

    def push(self, pcm: bytes) -> None:
        """Play little-endian 16 bit samples."""
        try:
            self._input.write(pcm)
            self._input.flush()
        except BrokenPipeError as error:
            raise self._failure() from error

    def close(self) -> None:
        """Wait until everything has been played."""
        with self._held:
            if self._process is None:
                playing = subprocess.run([self._name, self._input.name], stderr=self._errors)
                status = playing.returncode
            else:
                with suppress(BrokenPipeError):
                    self._input.close()
                status = self._process.wait()
            if status or (self._name in _HIDE_FAILURE and self._said()):
                raise self._failure()

    def abandon(self) -> None:
        """Stop at once; no-op after `close`."""
        if self._process is not None:
            self._process.terminate()
        self._held.close()

    def _failure(self) -> CommandFailed:
        said = self._said()
        if _NO_DEVICE.search(said):
            return CommandFailed(
                f"play: no sound device, says {self._name} ({said.splitlines()[-1]});"
                " name a file with -o"
            )
        why = f": {said.splitlines()[-1]}" if said else ""
        return CommandFailed(f"play: {self._name} ended before everything was played{why}")

    def _said(self) -> str:
        """Return what the player has written to stderr."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()
