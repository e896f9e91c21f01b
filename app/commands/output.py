"""What a command writes: files, and its messages to the user."""

import sys
from pathlib import Path

from app.commands.errors import CommandError, CommandFailed
from app.storage.files import write_atomically


def check_out(out: Path, field: str, *, length: str = "") -> None:
    """Check that a file can be written, and say if it is replaced, before anything is done.

    ``field`` is the flag that named it, ``length`` that of its sound.
    """
    if not out.parent.is_dir():
        raise CommandError(f"{field}: {out.parent} is not a folder")
    if out.is_dir():
        raise CommandError(f"{field}: {out} is a folder")
    if out.is_file():
        print_status(f"replaces {out}{length} at the end")


def write_file(out: Path, content: bytes, field: str) -> None:
    """Write a file atomically; ``field`` is the flag that named it."""
    try:
        write_atomically(out, content)
    except OSError as error:
        raise CommandFailed(f"{field}: {out}: {error.strerror}") from error


def print_status(sentence: str) -> None:
    """Print a message to the user on stderr; stdout is for data."""
    print(sentence, file=sys.stderr)
