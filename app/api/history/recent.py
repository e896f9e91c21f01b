"""The most recent speeches: a bounded store of their outcomes, and the ids of their requests.

Use the store from the event loop only. Texts are not logged unless the operator enables that.
"""

import logging
from collections import Counter
from typing import Final, NamedTuple

from app.api.errors import RequestInProgress
from app.api.history.report import AskedSpeech, Failure, Outcome
from app.api.schemas import ContinueFrom
from app.engine.core import Resume, SpeechResult
from app.engine.errors import InvalidRequest, UnknownSpeech

log = logging.getLogger(__name__)

_MOST_IDS: Final = 4096


class Entry(NamedTuple):
    """A request id of a client: the SHA-256 of its request's body, and its speech."""

    digest: str
    speech_id: str
    done: bool


class RecentSpeeches:
    """Bounded store of outcomes, or of none. The client with the most entries loses its oldest.

    A client that lost the connection, or a proxy that tries another replica, repeats its request
    with the same `x-request-id`: such a request is spoken once.
    """

    def __init__(self, limit: int, *, log_text: bool = False) -> None:
        self._limit = limit
        self._log_text = log_text
        self._kept: dict[str, tuple[AskedSpeech, Outcome]] = {}  # oldest first
        self._ids: dict[str, Entry] = {}  # oldest first
        self._claims: dict[str, tuple[str, str]] = {}  # speech id -> key, digest

    def keep(self, asked: AskedSpeech, outcome: Outcome) -> None:
        """Store the outcome of a speech, evict if full, and end the claim of its request id."""
        self._remember(asked, outcome)
        self.end(asked.job.id, complete=isinstance(outcome, SpeechResult))

    def _remember(self, asked: AskedSpeech, outcome: Outcome) -> None:
        job = asked.job
        if self._log_text:
            log.info("response %s: said %r", job.id, job.text, extra={"text": job.text})
        self._kept[job.id] = (asked, outcome)
        while len(self._kept) > self._limit:
            counts = Counter(kept.job.client for kept, _ in self._kept.values())
            largest = max(counts.values())
            del self._kept[
                next(
                    speech_id
                    for speech_id, (kept, _) in self._kept.items()
                    if counts[kept.job.client] == largest
                )
            ]

    async def find(self, job_id: str, owner: str) -> tuple[AskedSpeech, Outcome]:
        """Return an owner's speech as it was asked for, and its outcome.

        Raises UnknownSpeech if it is not stored or of another owner; the message does not say
        which.
        """
        kept = self._kept.get(job_id)
        if kept is None or kept[0].job.owner != owner:
            raise UnknownSpeech(
                f"no speech of that id is stored; this process keeps the last {self._limit}"
            )
        return kept

    async def complete(self, job_id: str, owner: str) -> tuple[AskedSpeech, SpeechResult]:
        """Return an owner's speech as it was asked for, and its result.

        Raises UnknownSpeech as `find` does, and if the speech did not complete.
        """
        asked, outcome = await self.find(job_id, owner)
        if isinstance(outcome, Failure):
            raise UnknownSpeech(f"the speech of that id did not complete: {outcome.finish_reason}")
        return asked, outcome

    async def take(self, place: ContinueFrom, owner: str) -> Resume:
        """Return the utterances before a place of a speech, the last one cut there.

        Raises InvalidRequest if the speech has no such utterance, or that has fewer frames.
        """
        _, result = await self.complete(place.id, owner)
        spoken = result.utterances
        if place.utterance >= len(spoken):
            raise InvalidRequest(
                f"the take has {len(spoken)} utterances, numbered from 0",
                param="continue_from.utterance",
            )
        last = spoken[place.utterance]
        if place.frame > len(last.codes):
            raise InvalidRequest(
                f"utterance {place.utterance} of the take has {len(last.codes)} frames",
                param="continue_from.frame",
            )
        before = [one.kept(len(one.codes)) for one in spoken[: place.utterance]]
        lookahead = result.params.text_lookahead_words
        return Resume((*before, last.kept(place.frame)), len(before), lookahead)

    async def claim(self, owner: str, client_id: str, digest: str, speech_id: str) -> str | None:
        """Claim an owner's request id for a speech; `keep` or `end` ends the claim.

        Returns None, or the id of the complete speech of a request of that id with the same SHA-256
        ``digest`` of its body. Raises InvalidRequest if the digest is another one, and
        RequestInProgress if that speech is not complete.
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
        found = self._ids.setdefault(key, entry)
        while len(self._ids) > _MOST_IDS:
            del self._ids[next(iter(self._ids))]
        return None if found is entry else found

    def _end(self, key: str, entry: Entry | None) -> None:
        if entry is None:
            self._ids.pop(key, None)
        else:
            self._ids[key] = entry
