"""Reports of the most recent speeches: their schema, and a bounded store in memory.

Use it from the event loop only. Texts are not logged unless the operator enables that.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel, Field

from app.api.schemas import ContinueFrom, ErrorDetail, UtteranceText
from app.engine.errors import InvalidRequest, ReaderStalled, SpeechError, UnknownSpeech
from app.engine.interface import Plan
from app.engine.job import (
    Backtrack,
    FinishReason,
    KeptTake,
    NarPlan,
    RankedTake,
    SpeechJob,
    SpeechResult,
    SpokenUtterance,
    Timings,
)
from samplers.knobs.params import SamplingParams

log = logging.getLogger(__name__)


class RequestReport(BaseModel):
    """The request with all defaults resolved."""

    input: str
    voice: str | None = Field(description="Null if it ended before a voice was chosen.")
    language: str | None = Field(description="Null if it ended before a language was chosen.")
    max_duration_s: float | None = Field(description="As in the request.")
    params: SamplingParams = Field(description="Every knob as used, with preset and seed.")


class UtteranceReport(UtteranceText):
    """One utterance of the text; the last three fields are null without `trace`."""

    codes: list[list[int]] = Field(description="One list per frame, with its levels in order.")
    finish_reason: FinishReason
    backtracks: list[Backtrack] = Field(description="Each rewind, and its cause.")
    takes: list[RankedTake] = Field(
        description="The candidates of best_of, beam search or branching, if there were several; "
        "see docs/samplers.md."
    )
    tokens: list[dict[str, int | float | bool | None]] | None = Field(
        description="One record per draw, rewound ones and the stop included; see docs/trace.md."
    )
    scores: list[float | None] | None = Field(
        description="Log-probability of each token kept, under the distribution it was drawn from; "
        "0 if greedy."
    )
    logprobs: list[float | None] | None = Field(
        description="Log-probability of each token kept, under the model's own logits."
    )


class SpeechReport(BaseModel):
    """The report of a speech; one that failed or was cancelled lacks some fields."""

    id: str
    request: RequestReport
    finish_reason: FinishReason
    error: ErrorDetail | None = Field(description="Null if it did not fail.")
    codes_sha256: str | None
    frames: int = Field(description="Number of frames generated.")
    audio_s: float = Field(description="Seconds of audio sent.")
    timings: Timings | None
    nar: NarPlan | None = Field(
        description="How the finer levels were decoded: the `whole` utterance, `windows`, "
        "or `chunks`, whose codes are those of `whole`."
    )
    decoder: str | None = Field(description="Decoder of codes to audio: codec or vocos.")
    warnings: list[str] = Field(
        description="What was read otherwise than may be meant: another language, sounds in"
        " brackets; `X-Warning` of the response."
    )
    utterances: list[UtteranceReport] = Field(description="The utterances that completed.")


@dataclass(frozen=True, slots=True)
class Failure:
    """Outcome of a speech that did not complete.

    Args:
        error: The error; None if the client disconnected or cancelled.
        plan: The resolved request, if the speech got that far.
        frames: Number of frames generated.
        audio_s: Seconds of audio sent.
        utterances: The utterances that completed.
    """

    error: SpeechError | None
    plan: Plan | None
    frames: int
    audio_s: float
    utterances: tuple[SpokenUtterance, ...] = ()

    @property
    def finish_reason(self) -> FinishReason:
        """`cancelled` or `error`."""
        cancelled = self.error is None or isinstance(self.error, ReaderStalled)
        return "cancelled" if cancelled else "error"


class RecentSpeeches:
    """Bounded store of outcomes. If full, the client with the most entries loses its oldest.

    Args:
        limit: Number of entries; 0 stores none.

    Attributes:
        when_kept: Called with each job, and whether it completed, once its outcome is stored.
    """

    def __init__(self, limit: int, *, log_text: bool = False) -> None:
        self._limit, self._log_text = limit, log_text
        self.when_kept: Callable[[SpeechJob, bool], None] = lambda _job, _complete: None
        self._kept: dict[str, tuple[SpeechJob, SpeechResult | Failure]] = {}  # oldest first

    def keep(self, job: SpeechJob, outcome: SpeechResult | Failure) -> None:
        """Store a job's outcome and evict if full."""
        self._keep(job, outcome)
        self.when_kept(job, isinstance(outcome, SpeechResult))

    def _keep(self, job: SpeechJob, outcome: SpeechResult | Failure) -> None:
        if self._log_text:
            log.info("response %s: said %r", job.id, job.text, extra={"text": job.text})
        self._kept[job.id] = (job, outcome)
        while len(self._kept) > self._limit:
            counts = Counter(kept.asker for kept, _ in self._kept.values())
            largest = max(counts.values())
            del self._kept[
                next(one for one, (kept, _) in self._kept.items() if counts[kept.asker] == largest)
            ]

    async def find(self, job_id: str, owner: str) -> tuple[SpeechJob, SpeechResult | Failure]:
        """Return an owner's job and its outcome.

        Raises:
            UnknownSpeech: It is not stored or belongs to another owner; the message does not tell
                which.
        """
        kept = self._kept.get(job_id)
        if kept is None or kept[0].owner != owner:
            raise UnknownSpeech(
                f"no speech of that id is stored; this process keeps the last {self._limit}"
            )
        return kept

    async def take(self, place: ContinueFrom | None, owner: str) -> KeptTake | None:
        """Return what a request keeps of a recent take; None if it goes on from none.

        Args:
            place: Where it goes on.
            owner: Whose takes it can go on from.

        Raises:
            InvalidRequest: It has no such utterance, or that has fewer frames.
        """
        if place is None:
            return None
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
        return KeptTake((*before, last.kept(place.frame)), whole=len(before))

    async def complete(self, job_id: str, owner: str) -> tuple[SpeechJob, SpeechResult]:
        """Return an owner's job and its result.

        Raises:
            UnknownSpeech: It is not stored, belongs to another owner, or did not complete.
        """
        job, outcome = await self.find(job_id, owner)
        if isinstance(outcome, Failure):
            raise UnknownSpeech(f"the speech of that id did not complete: {outcome.finish_reason}")
        return job, outcome
