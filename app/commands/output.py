"""Files that a command writes."""

import sys
from pathlib import Path

from app.commands.errors import CommandError


def check_folder(out: Path, field: str) -> None:
    """Find out before the work whether there is a folder to write into.

    Raises:
        CommandError: There is none.
    """
    if not out.parent.is_dir():
        raise CommandError(f"{field}: {out.parent} is no folder")


def write_whole(out: Path, content: bytes, field: str) -> None:
    """Write a file, whole or not at all.

    Args:
        out: The file.
        content: What it will hold.
        field: Of the command line, for the message.

    Raises:
        CommandError: It cannot be written.
    """
    partial = out.with_name(out.name + ".partial")
    try:
        partial.write_bytes(content)
        partial.replace(out)
    except OSError as error:
        raise CommandError(f"{field}: {out}: {error.strerror}") from error


def say(sentence: str) -> None:
    """Tell whoever runs a command something; what is meant for programs goes to stdout."""
    print(sentence, file=sys.stderr)
