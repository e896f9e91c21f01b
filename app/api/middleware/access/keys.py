"""API keys: those that are valid, and the one that a request sent.

A key is 256 random bits, or chosen by the operator with at least 16 characters, and stored as a
hash only. SHA-256 is enough: salts and slow hashes protect passwords, which can be guessed.
"""

import hashlib
import hmac
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from starlette.requests import HTTPConnection

from app.settings import Settings

SUBPROTOCOL = "valle.key."
"""Prefix of a key sent as WebSocket subprotocol by browsers, which cannot set headers."""

NAME = r"[a-z0-9][a-z0-9_-]{0,31}"
"""Pattern of an owner's name, which is also a folder name on any file system."""

_KEY = r"[A-Za-z0-9._~-]{16,256}"  # valid in a header and in a subprotocol
_HASH = r"[0-9a-f]{64}"


class KeyringError(ValueError):
    """The configured keys are invalid; the message contains no key."""


class Keyring:
    """The valid keys with their owners, as SHA-256 in hexadecimal; an empty one requires no key.

    An owner may have several keys, so that keys can be replaced without interruption. A key of two
    owners is a `KeyringError`.
    """

    def __init__(self, hashed: Iterable[tuple[str, str]] = ()) -> None:
        self._owners: dict[str, str] = {}
        for owner, digest in hashed:
            if self._owners.setdefault(digest, owner) != owner:
                raise KeyringError(f"{owner} and {self._owners[digest]} have the same key")

    @classmethod
    def of(cls, settings: Settings) -> "Keyring":
        """Return the keys of the environment and of the key file, or raise `KeyringError`.

        Keys that are configured but not there are one: an empty keyring would let everybody in.
        """
        plain = settings.api_keys.get_secret_value()
        ring = cls([*_of_environment(plain), *_of_file(settings.api_keys_file)])
        if settings.asks_for_keys and not ring:
            raise KeyringError(_no_key(settings))
        return ring

    def __bool__(self) -> bool:
        return bool(self._owners)

    def owner(self, key: str) -> str | None:
        """Return the owner of a key, or None. Runs in constant time for a keyring."""
        digest = hashed(key)
        found = None
        for known, owner in self._owners.items():
            if hmac.compare_digest(known, digest):
                found = owner
        return found


def _no_key(settings: Settings) -> str:
    """Return the error message for a configuration of keys that has none."""
    if path := settings.api_keys_file:
        return (
            f"api_keys_file: {path} has no key; `valle-serve keys new NAME` prints a line for it."
            " Unset the setting to require no key"
        )
    return "api_keys: it has no key; unset the setting to require none"


def new_key() -> str:
    """Return a new random key."""
    return "vs-" + secrets.token_urlsafe(32)


def hashed(key: str) -> str:
    """Return the SHA-256 of a key in hexadecimal."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()


def sent_key(connection: HTTPConnection, headers: Sequence[str] = ()) -> str | None:
    """Return the key of a request: a bearer token, one of ``headers``, a WebSocket's subprotocol.

    None without.
    """
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    for header in headers:
        if (key := connection.headers.get(header, "")) != "":
            return key.strip()
    for offered in connection.scope.get("subprotocols", ()):
        if offered.startswith(SUBPROTOCOL):
            return str(offered.removeprefix(SUBPROTOCOL))
    return None


def _of_environment(plain: str) -> Iterator[tuple[str, str]]:
    """Yield owner and hash of each `name:key` or `key`."""
    for number, entry in enumerate(filter(None, map(str.strip, plain.split(","))), 1):
        match = re.fullmatch(rf"(?:({NAME}):)?({_KEY})", entry)
        if match is None:
            raise KeyringError(
                f"api_keys: entry {number} is not name:key or key; a key has 16 to 256 of"
                " A-Z a-z 0-9 . _ ~ -, a name up to 32 of a-z 0-9 _ -"
            )
        digest = hashed(match[2])
        yield match[1] or f"key-{digest[:8]}", digest


def _of_file(path: str) -> Iterator[tuple[str, str]]:
    """Yield owner and hash of each line `name:sha256`, ignoring blank lines and comments."""
    if not path:
        return
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        mode = Path(path).stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise KeyringError(f"api_keys_file: {path}: {why}") from error
    if mode & stat.S_IWOTH:
        raise KeyringError(f"api_keys_file: {path}: everybody may write it; chmod o-w it")
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(rf"({NAME}):({_HASH})", line)
        if match is None:
            raise KeyringError(
                f"api_keys_file: {path}: line {number} is not name:sha256;"
                " `valle-serve keys new NAME` prints one"
            )
        yield match[1], match[2]
