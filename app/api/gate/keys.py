"""Who may use the service: keys, known by their hashes alone.

A key is 256 bits of chance, or as an operator chose it and at least 16 characters. So its SHA-256
cannot be turned back by trying keys, and needs no salt and no slow hash, which exist for passwords
that people think up.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from starlette.requests import HTTPConnection

from app.settings import Settings

SUBPROTOCOL = "valle.key."
"""What a key has before it where a browser sends it as a subprotocol: a page can set no header."""

NAME = r"[a-z0-9][a-z0-9_-]{0,31}"
"""Pattern of an owner's name: also a name of a folder, on any file system."""

_KEY = r"[A-Za-z0-9._~-]{16,256}"  # what a header and a subprotocol can hold both
_HASH = r"[0-9a-f]{64}"


class KeyringError(ValueError):
    """Keys that cannot be used; the message tells no key."""


class Keyring:
    """The keys that may be used, each with the name of its owner. Empty: nobody is asked for one.

    An owner may have several keys, so that a new one can be given out before the old one goes.
    """

    def __init__(self, hashed: Iterable[tuple[str, str]] = ()) -> None:
        """Take the keys.

        Args:
            hashed: Owner and SHA-256 as hexadecimal digits of each.

        Raises:
            KeyringError: One of them belongs to two.
        """
        self._owners: dict[str, str] = {}
        for owner, digest in hashed:
            if self._owners.setdefault(digest, owner) != owner:
                raise KeyringError(f"{owner} and {self._owners[digest]} have the same key")

    @classmethod
    def of(cls, settings: Settings) -> "Keyring":
        """Return the keys of the environment and of the file that the settings name.

        Raises:
            KeyringError: They cannot be read; or keys are asked for, and there are none, so that
                nobody could come in, and an empty keyring would let everybody in.
        """
        plain = settings.api_keys.get_secret_value()
        ring = cls([*_of_environment(plain), *_of_file(settings.api_keys_file)])
        if settings.asks_for_keys and not ring:
            raise KeyringError(_no_key(settings))
        return ring

    def __bool__(self) -> bool:
        return bool(self._owners)

    def owner(self, key: str) -> str | None:
        """Return whose a key is; None is nobody's. Takes as long for any key."""
        digest, found = hashed(key), None
        for known, owner in self._owners.items():
            if hmac.compare_digest(known, digest):
                found = owner
        return found


def _no_key(settings: Settings) -> str:
    """Return what to do where keys are asked for and there are none."""
    if path := settings.api_keys_file:
        return (
            f"api_keys_file: {path} holds no key; `valle-serve keys new NAME` writes a line for it."
            " Leave the setting out to ask nobody for a key"
        )
    return "api_keys: there is no key in it; leave the setting out to ask nobody for one"


def new_key() -> str:
    """Return a key that nobody has."""
    return "vs-" + secrets.token_urlsafe(32)


def hashed(key: str) -> str:
    """Return the SHA-256 of a key as hexadecimal digits."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()


def sent_key(connection: HTTPConnection) -> str | None:
    """Return the key that a client sent: as a bearer, or for a WebSocket as a subprotocol."""
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    for offered in connection.scope.get("subprotocols", ()):
        if offered.startswith(SUBPROTOCOL):
            return str(offered.removeprefix(SUBPROTOCOL))
    return None


def _of_environment(plain: str) -> Iterator[tuple[str, str]]:
    """Yield owner and hash of each `name:key` or `key`.

    Raises:
        KeyringError: One is neither.
    """
    for number, entry in enumerate(filter(None, map(str.strip, plain.split(","))), 1):
        match = re.fullmatch(rf"(?:({NAME}):)?({_KEY})", entry)
        if match is None:
            raise KeyringError(
                f"api_keys: entry {number} is no name:key or key; a key has 16 to 256 of"
                " A-Z a-z 0-9 . _ ~ -, a name up to 32 of a-z 0-9 _ -"
            )
        digest = hashed(match[2])
        yield match[1] or f"key-{digest[:8]}", digest


def _of_file(path: str) -> Iterator[tuple[str, str]]:
    """Yield owner and hash of each line `name:sha256`; blank lines and those with # are none.

    Raises:
        KeyringError: It cannot be read.
    """
    if not path:
        return
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise KeyringError(f"api_keys_file: {path}: {why}") from error
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(rf"({NAME}):({_HASH})", line)
        if match is None:
            raise KeyringError(
                f"api_keys_file: {path}: line {number} is no name:sha256;"
                " `valle-serve keys new NAME` writes one"
            )
        yield match[1], match[2]
