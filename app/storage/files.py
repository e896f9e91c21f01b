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
    """The files in a folder of this machine; thread-safe. `RemoteFiles` has the same methods.

    What an earlier folder has is read and deleted too; nothing is written there.
    """

    def __init__(self, root: Path, earlier: Path | None = None) -> None:
        self.root = root.expanduser()
        self._earlier = None if earlier is None else earlier.expanduser()

    def read(self, path: Path, *, large: bool = False) -> bytes:  # noqa: ARG002
        """Return the content of a file; ``large`` allows a store on another machine more time."""
        return self._where(path).read_bytes()

    def state(self, path: Path) -> tuple[int, int] | None:
        """Return what changes with a file: its size in bytes, and when it was written, in ns."""
        found = self._where(path).stat()
        return found.st_size, found.st_mtime_ns

    def exists(self, path: Path) -> bool:
        """Return whether there is a file."""
        return self._where(path).exists()

    def list(self, folder: Path) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the files in a folder; none if it is missing."""
        found = [path for one in self._places(folder) if one.is_dir() for path in one.iterdir()]
        folders = {path.name: None for path in found if path.is_dir()}
        files = {path.name: None for path in found if path.name not in folders}
        return [*folders], [*files]

    def write(self, path: Path, content: bytes) -> None:
        """Write a file."""
        write_atomically(path, content)

    def create(self, path: Path, content: bytes) -> None:
        """Write a file in a locked folder; `FileExistsError` says that there is one."""
        if self.exists(path):
            raise FileExistsError(path)
        write_atomically(path, content)

    def delete(self, path: Path) -> None:
        """Delete a file."""
        for place in [one for one in self._places(path) if one.exists()] or [path]:
            place.unlink()

    def _places(self, path: Path) -> "tuple[Path, ...]":
        """Return where a file or folder may be, the folder that is written first."""
        if self._earlier is None:
            return (path,)
        return path, self._earlier / path.relative_to(self.root)

    def _where(self, path: Path) -> Path:
        """Return where a file is; if it is nowhere, where it would be written."""
        return next((place for place in self._places(path) if place.exists()), path)

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
