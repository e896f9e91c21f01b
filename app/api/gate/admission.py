"""Admission control: API keys, and per client the numbers of requests, of work and of connections.

A key is 256 random bits, or chosen by the operator with at least 16 characters, and stored as a
hash only. SHA-256 is enough: salts and slow hashes protect passwords, which can be guessed. Use the
counters from the event loop only.
"""

import asyncio
import hashlib
import hmac
import math
import re
import secrets
import stat
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Any

from limits import RateLimitItemPerMinute
from starlette.requests import HTTPConnection

from app.api.errors import TooManyRequests
from app.engine.errors import EngineNotReady, Unavailable
from app.engine.quota import share
from app.settings import Settings

SUBPROTOCOL = "valle.key."
"""Prefix of a key sent as WebSocket subprotocol by browsers, which cannot set headers."""

NAME = r"[a-z0-9][a-z0-9_-]{0,31}"
"""Pattern of an owner's name, which is also a folder name on any file system."""

THEIR_HEADER = "xi-api-key"
"""Header in which ElevenLabs' clients send a key."""

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


def sent_key(connection: HTTPConnection) -> str | None:
    """Return the key of a request: a bearer token, ElevenLabs' header, a WebSocket's subprotocol.

    None without.
    """
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    if (key := connection.headers.get(THEIR_HEADER, "")) != "":
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


_IPV6_PREFIX_BITS = 64  # what one home or one rented machine is given, to choose addresses from


def client_of(connection: HTTPConnection) -> str:
    """Return the client of a connection: an owner of API keys, or an address without keys."""
    client = connection.client
    return str(connection.state.owner) or (network_of(client.host) if client else "")


def address_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is, without its zone; None if it is none."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


@lru_cache(4096)
def network_of(host: str) -> str:
    """Return the address that counts for a host; for IPv6 its /64, as one client has many."""
    address = address_of(host)
    if address is None:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((int(address), _IPV6_PREFIX_BITS), strict=False))


RETRY_S = 5
_WINDOW_S = 60.0
_MANY_CLIENTS = 4096  # from here on, those without a recent request are forgotten
_POLL_S = 0.02
_WORK_RETRY_S = 1

MOST_CUTS = 200.0
CUTS_A_SECOND = 20.0
"""How many speeches a client may begin and leave at once, and how many a second after that."""


class Admission:
    """Counts requests and work in progress of each client: an owner of keys, or an address.

    The rate holds in any 60 s, and speeches and uploads are work; a limit of 0 is none.
    """

    def __init__(self, rate_per_minute: int = 0, max_concurrent: int = 0) -> None:
        self._rate = RateLimitItemPerMinute(rate_per_minute) if rate_per_minute else None
        self._max_concurrent = max_concurrent
        # By the monotonic clock: a wall clock that is set back would refuse a client until then.
        self._times: dict[str, deque[float]] = {}
        self._working: Counter[str] = Counter()
        self._cuts: dict[str, tuple[float, float]] = {}  # how many of late, as of a time
        self._closed = False

    @property
    def working(self) -> int:
        """Number of speeches and uploads in progress, of all clients."""
        return self._working.total()

    async def count(self, client: str) -> None:
        """Count a request towards the rate limit; raises TooManyRequests if it is exceeded."""
        if self._rate is None or (wait_s := await self._wait_s(client)) is None:
            return
        wait_s = max(1, math.ceil(wait_s))
        raise TooManyRequests(
            f"the limit is {self._rate.amount} requests a minute; retry in {wait_s} s",
            retry_after_s=wait_s,
        )

    async def _wait_s(self, client: str) -> float | None:
        """Count a request; return None if the rate limit allows it, else the seconds to wait."""
        assert self._rate is not None
        now_s = time.monotonic()
        most = self._rate.amount
        if len(self._times) > _MANY_CLIENTS:
            recent = {one: at for one, at in self._times.items() if at[-1] > now_s - _WINDOW_S}
            self._times = recent
        times = self._times.setdefault(client, deque(maxlen=most))
        if len(times) == most and (wait_s := times[0] + _WINDOW_S - now_s) > 0:
            return wait_s
        times.append(now_s)
        return None

    def cut(self, client: str) -> None:
        """Count a speech that its client has left."""
        if len(self._cuts) > _MANY_CLIENTS:
            self._cuts = {one: at for one, at in self._cuts.items() if self._cuts_of(one) > 0}
        self._cuts[client] = self._cuts_of(client) + 1, time.monotonic()

    def check_cuts(self, client: str) -> None:
        """Raise TooManyRequests if a client begins and leaves too many speeches.

        Each takes some time of all workers, though nobody hears it.
        """
        if (more := self._cuts_of(client) - MOST_CUTS) > 0:
            wait_s = max(1, math.ceil(more / CUTS_A_SECOND))
            raise TooManyRequests(
                f"too many requests of yours were left before their answers were complete; retry in"
                f" {wait_s} s",
                retry_after_s=wait_s,
            )

    def _cuts_of(self, client: str) -> float:
        count, at_s = self._cuts.get(client, (0.0, 0.0))
        return max(0.0, count - CUTS_A_SECOND * (time.monotonic() - at_s))

    async def work(self, client: str) -> AbstractContextManager[None]:
        """Return a context, to be entered at once, that counts work in progress until it ends."""
        self.check_open()
        self.check_cuts(client)
        self._check_work(client)
        return self._counted(client)

    def _check_work(self, client: str) -> None:
        if self._max_concurrent and self._working[client] >= self._max_concurrent:
            raise self._too_much_work()

    def _too_much_work(self) -> TooManyRequests:
        return TooManyRequests(
            f"the limit is {self._max_concurrent} requests at once; wait for one of them",
            retry_after_s=_WORK_RETRY_S,
        )

    @contextmanager
    def _counted(self, client: str) -> Iterator[None]:
        self._working[client] += 1
        try:
            yield
        finally:
            self._working[client] -= 1
            if not self._working[client]:
                del self._working[client]

    @property
    def closed(self) -> bool:
        """Whether the service is shutting down."""
        return self._closed

    def check_open(self) -> None:
        """Raise EngineNotReady if the service is shutting down."""
        if self._closed:
            raise shutting_down()

    async def close(self, timeout_s: float) -> None:
        """Refuse new work, and wait until all work is done or the timeout has passed."""
        self._closed = True
        ends_s = time.monotonic() + timeout_s
        while self.working and time.monotonic() < ends_s:
            await asyncio.sleep(_POLL_S)


def shutting_down() -> EngineNotReady:
    """Return the error for a request that comes, or has no answer yet, at a shutdown."""
    return EngineNotReady("not ready: it is shutting down", retry_after_s=RETRY_S)


class TooManyConnections(Unavailable):
    """All connections, or all of the client's, are in use."""

    code = "too_many_connections"


class OpenConnections:
    """The connections of a process, of which each address has at most its share."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.http: Collection[Any] = ()  # with WebSockets, as uvicorn counts them
        self.probe_only: deque[Any] = deque()  # those of them beyond the limit, oldest first
        self._others = Counter[str]()

    def exceeded_by(self, address: str) -> bool:
        """Return whether there are too many, of all or of an address, with one just opened."""
        open_ = self._addresses()
        return len(open_) > self._limit or open_.count(address) > share(self._limit)

    def too_many(self) -> TooManyConnections:
        """Return the error for a connection beyond the limit."""
        return TooManyConnections(
            f"{len(self._addresses())} connections are open, which is the limit for all or for your"
            f" address; retry in {RETRY_S} s",
            retry_after_s=RETRY_S,
        )

    @contextmanager
    def counted(self, address: str) -> Iterator[None]:
        """Count a connection that is not of the HTTP server, for the time of a context."""
        self._others[address] += 1
        try:
            if self.exceeded_by(address):
                raise self.too_many()
            yield
        finally:
            self._others[address] -= 1

    def abort(self) -> None:
        """Abort what is open of the HTTP server, at a shutdown: bytes that no client takes."""
        for one in list(self.http):
            if one.transport is not None:
                one.transport.abort()

    def _addresses(self) -> list[str]:
        """Return the address of each connection; those that may only probe do not count."""
        http = [client_address(one) for one in self.http if one not in self.probe_only]
        return [*http, *self._others.elements()]


def client_address(connection: Any) -> str:
    """Return the address, or IPv6 network, whose share one of uvicorn's connections counts to."""
    client = getattr(connection, "client", None)
    return network_of(client[0]) if client else ""
