"""Speech requests that are sent twice with one `x-request-id`, spoken once.

A client that lost the connection, or a proxy that tries another replica, repeats its request with
the same id. Owners have ids of their own, as they are chosen by clients.
"""

from typing import NamedTuple

from app.api.errors import RequestInProgress
from app.engine.errors import InvalidRequest

_MOST = 4096


class Entry(NamedTuple):
    """What is known of a request id.

    Args:
        digest: SHA-256 of the request's body.
        speech_id: Id of its speech.
        done: Whether the speech is complete; otherwise it is in progress.
    """

    digest: str
    speech_id: str
    done: bool


class RequestIds:
    """The request ids of one process."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}  # oldest first
        self._claims: dict[str, tuple[str, str]] = {}  # speech id -> key, digest

    async def claim(self, owner: str, client_id: str, digest: str, speech_id: str) -> str | None:
        """Claim a request id for a speech; the caller must call `end`.

        Args:
            owner: The client's owner.
            client_id: The id that the client sent.
            digest: SHA-256 of the request's body.

        Returns:
            None if it is claimed, or the id of the complete speech of the same request.

        Raises:
            InvalidRequest: Another request had that id.
            RequestInProgress: The same request is in progress.
        """
        key = f"request:{owner}:{client_id}"
        found = await self._claim(key, Entry(digest, speech_id, done=False))
        if found is None:
            self._claims[speech_id] = (key, digest)
            return None
        if found.digest != digest:
            raise InvalidRequest("another request had this id", param="x-request-id")
        if not found.done:
            raise RequestInProgress("the request with this id is in progress", retry_after_s=1)
        return found.speech_id

    def end(self, speech_id: str, *, complete: bool) -> None:
        """End a claim, if there is one: keep the id if the speech is complete, else forget it."""
        claim = self._claims.pop(speech_id, None)
        if claim is not None:
            key, digest = claim
            self._end(key, Entry(digest, speech_id, done=True) if complete else None)

    async def _claim(self, key: str, entry: Entry) -> Entry | None:
        """Store an entry unless there is one; return that."""
        found = self._entries.setdefault(key, entry)
        while len(self._entries) > _MOST:
            del self._entries[next(iter(self._entries))]
        return None if found is entry else found

    def _end(self, key: str, entry: Entry | None) -> None:
        if entry is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = entry
