"""What a command writes: files, and its messages to the user."""

import sys
from pathlib import Path

from app.commands.errors import CommandError, CommandFailed
from app.storage.files import write_atomically


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
