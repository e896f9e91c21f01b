"""Quotas: of a pool of places each client may have a share, so that nobody excludes the others.

A client is an owner of keys, or an address where no keys are required.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_RESERVED = 5  # one place in so many


def reserved(places: int) -> int:
    """Return how many of some places one client cannot have."""
    return places // _RESERVED


def share(places: int) -> int:
    """Return how many of some places one client may have."""
    return places - reserved(places)


class ClientQuota:
    """A pool of places, of which each client has at most its share. One thread only."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self._of: Counter[str] = Counter()

    def free(self, client: str, places: int = 1) -> bool:
        """Return whether a client can take more places."""
        own = self._of[client] + places
        return self.taken + places <= self.limit and own <= share(self.limit)

    def take(self, client: str, places: int = 1) -> None:
        """Take places until `give_back`; the caller checks `free` before."""
        self.taken += places
        self._of[client] += places

    def give_back(self, client: str, places: int = 1) -> None:
        """Free places that were taken."""
        self.taken -= places
        self._of[client] -= places
        if not self._of[client]:
            del self._of[client]

    @contextmanager
    def held(self, client: str) -> Iterator[None]:
        """Take a place for the duration of a context; the caller checks `free` before."""
        self.take(client)
        try:
            yield
        finally:
            self.give_back(client)
