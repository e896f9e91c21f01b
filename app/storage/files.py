"""Files that are whole or not there."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file and replace the one that is there, if any; nobody sees a part of it."""
    partial = path.with_name(path.name + ".partial")
    try:
        # One that a process left when it was killed, or a link, which would lead elsewhere.
        partial.unlink(missing_ok=True)
        with partial.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)  # on a full disk it would take room that others need
        raise
