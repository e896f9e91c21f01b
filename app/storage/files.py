"""Files that are whole or not there, and how a folder of them fails."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCK_TIMEOUT_S = 20.0


class StoreAway(OSError):
    """A store on another machine does not answer, or not to these credentials."""


class UnknownStore(ValueError):
    """The URL is of no kind of store that is known."""


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


class FolderFiles:
    """The files in a folder of this machine; thread-safe. `RemoteFiles` has the same methods."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser()

    def read(self, path: Path, *, large: bool = False) -> bytes:  # noqa: ARG002
        """Return the content of a file; ``large`` allows a store on another machine more time."""
        return path.read_bytes()

    def state(self, path: Path) -> tuple[int, int] | None:
        """Return what changes with a file: its size in bytes, and when it was written, in ns."""
        found = path.stat()
        return found.st_size, found.st_mtime_ns

    def exists(self, path: Path) -> bool:
        """Return whether there is a file."""
        return path.exists()

    def list(self, folder: Path) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the files in a folder; none if it is missing."""
        found = [*folder.iterdir()] if folder.is_dir() else []
        folders = [path.name for path in found if path.is_dir()]
        return folders, [path.name for path in found if path.name not in folders]

    def write(self, path: Path, content: bytes) -> None:
        """Write a file."""
        write_atomically(path, content)

    def create(self, path: Path, content: bytes) -> None:
        """Write a file in a locked folder; `FileExistsError` says that there is one."""
        if path.exists():
            raise FileExistsError(path)
        write_atomically(path, content)

    def delete(self, path: Path) -> None:
        """Delete a file."""
        path.unlink()

    @contextmanager
    def locked(self, folder: Path) -> Iterator[None]:
        """Create and lock a folder; files of uploads that were interrupted are removed."""
        from filelock import FileLock

        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(folder / ".lock", timeout=_LOCK_TIMEOUT_S):
            for path in [*folder.glob("*.flac"), *folder.glob("*.partial")]:
                if not (folder / f"{path.name.partition('.')[0]}.json").exists():
                    path.unlink()
            yield
