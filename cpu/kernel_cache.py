"""numba's cache of machine code, with a hash in each file: what is damaged is compiled again.

numba trusts its files: one that was cut off ends the start, and one whose bytes changed the process
(SIGSEGV). Here no error of the cache reaches a caller; the function is then compiled.
"""

import logging
import pickle
from collections.abc import Callable, Hashable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from numba.core import caching

_caching: Any = caching  # numba has no types
log = logging.getLogger(__name__)

_HASH_BYTES: Final = sha256().digest_size


class DamagedCode(Exception):
    """A file of the cache is not what was written."""


def _hash(content: bytes, key: Hashable) -> bytes:
    """Return the hash of a file's content, which belongs to a key."""
    return sha256(repr(key).encode() + content).digest()


@cache
def _say(why: str, folder: str) -> None:
    """Log once in a process why kernels are not read, or not kept."""
    log.warning("kernels in %s: %s", folder, why)


class _CheckedFile(_caching.IndexDataCacheFile):  # type: ignore[misc]  # it is untyped
    """Index and data of one function, each file behind its hash."""

    def save(self, key: Hashable, data: Any) -> None:
        """Write an entry; where it cannot be, say so once."""
        try:
            super().save(key, _CachedKernel(key, data))
        except OSError as error:
            _say(f"they cannot be kept ({error.strerror}), so every start compiles", self._where)

    def load(self, key: Hashable) -> Any:
        """Return an entry; None if there is none, or it is damaged."""
        name = self._load_index().get(key)
        return None if name is None else self._read(Path(self._cache_path, name), key)

    @property
    def _where(self) -> str:
        return str(Path(self._cache_path).parent)

    def _load_index(self) -> dict[Hashable, str]:
        stored = self._read(Path(self._index_path), self._version)
        if stored is None:
            return {}
        stamp, overloads = stored
        return overloads if stamp == self._source_stamp else {}

    def _save_index(self, overloads: dict[Hashable, str]) -> None:
        content = self._dump((self._source_stamp, overloads))
        self._write(self._index_path, content, self._version)

    def _save_data(self, name: str, data: "_CachedKernel") -> None:
        self._write(self._data_path(name), self._dump(data.content), data.key)

    def _write(self, path: str, content: bytes, key: Hashable) -> None:
        with self._open_for_write(path) as file:
            file.write(_hash(content, key) + content)

    def _read(self, path: Path, key: Hashable) -> Any:
        """Return what is stored in a file; None if it is not there, or not what was written."""
        try:
            stored = path.read_bytes()
            content = stored[_HASH_BYTES:]
            if stored[:_HASH_BYTES] != _hash(content, key):
                raise DamagedCode("a file is damaged")
            return pickle.loads(content)
        except FileNotFoundError:
            return None
        except Exception as error:  # a folder in its place, no permission
            _say(f"{error}; they are compiled again", self._where)
            return None


class _CachedKernel:
    """What is kept for a key; numba hands on the data alone."""

    def __init__(self, key: Hashable, content: Any) -> None:
        self.key = key
        self.content = content


class KernelCache(_caching.FunctionCache):  # type: ignore[misc]  # it is untyped
    """The cache of one function; in the folder that numba's configuration names."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        locator = self._impl.locator
        self._cache_file = _CheckedFile(
            self._cache_path, self._impl.filename_base, locator.get_source_stamp()
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return compiled code; None if there is none that can be used."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:
            _say(f"they cannot be read ({error}), so they are compiled", str(self._cache_path))
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code; where the folder is gone or full, say so once."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _say(
                f"they cannot be kept ({error.strerror}), so every start compiles",
                str(self._cache_path),
            )
