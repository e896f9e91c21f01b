"""What a command writes: files, and its messages to the user."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.commands.errors import CommandError, CommandFailed
from app.engine.job import FinishReason
from app.storage.files import write_atomically

_SHOWN = 5  # numbers of sentences in a message


def check_folder(out: Path, field: str) -> None:
    """Check that the folder of a file exists; ``field`` is the flag that named it."""
    if not out.parent.is_dir():
        raise CommandError(f"{field}: {out.parent} is not a folder")


def write_file(out: Path, content: bytes, field: str) -> None:
    """Write a file atomically; ``field`` is the flag that named it."""
    try:
        write_atomically(out, content)
    except OSError as error:
        raise CommandFailed(f"{field}: {out}: {error.strerror}") from error


def print_status(sentence: str) -> None:
    """Print a message to the user on stderr; stdout is for data."""
    print(sentence, file=sys.stderr)


def warn_of_idle_knobs(idle: Mapping[str, str] | Sequence[str]) -> None:
    """Print which flags did nothing, with what each needs where that is known."""
    for name in idle:
        needs = f"; it needs {idle[name]}" if isinstance(idle, Mapping) else ""
        print_status(f"warning: --{name} did nothing{needs}")


def warn_of_silence(reasons: Sequence[FinishReason]) -> None:
    """Print which sentences have no sound, by the finish reasons of all in order."""
    silent = [number for number, reason in enumerate(reasons, start=1) if reason == "empty"]
    if not silent:
        return
    which = "it has no sound"
    if len(reasons) > 1:
        numbers = ", ".join(map(str, silent[:_SHOWN])) + (", ..." if silent[_SHOWN:] else "")
        which = f"{len(silent)} of {len(reasons)} sentences have no sound ({numbers})"
    print_status(
        f"warning: {which}: the model drew its stop before any frame. Try another --seed, or"
        " --min-frames 30, before which it cannot stop"
    )
