"""What became of the latest requests, for those who want to know more than fits in headers.

Kept in memory and bounded; touched on the event loop alone. Its texts are in no log, unless the
operator asks for them.
"""

import logging
from collections import Counter
from dataclasses import dataclass

from pydantic import BaseModel, Field

from app.api.schemas import ErrorDetail
from app.engine.errors import ReaderStalled, SpeechError, UnknownSpeech
from app.engine.interface import Plan
from app.engine.job import (
    Backtrack,
    FinishReason,
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
    """What was asked for, every choice made."""

    input: str
    voice: str | None = Field(description="Null where it ended before that was chosen.")
    language: str | None = Field(description="The same.")
    max_duration_s: float | None = Field(description="As the request had it.")
    params: SamplingParams = Field(description="Every knob as it was used, preset and seed too.")


class UtteranceReport(BaseModel):
    """One piece of the text; the last three fields only where the request had `trace`."""

    codes: list[list[int]] = Field(description="One list a frame, its levels in order.")
    finish_reason: FinishReason
    backtracks: list[Backtrack] = Field(description="How often it was taken back, and why.")
    takes: list[RankedTake] = Field(
        description="The ways that it was drawn in and what each was ranked by, if there were "
        "several; see docs/samplers.md."
    )
    tokens: list[dict[str, int | float | bool | None]] | None = Field(
        description="One record a draw, those taken back and the stop included; see docs/trace.md."
    )
    scores: list[float | None] | None = Field(
        description="Log-probability of each token that stayed, under what it was drawn from; "
        "0 where greedy."
    )
    logprobs: list[float | None] | None = Field(
        description="Log-probability of each token that stayed, under the model's own logits."
    )


class SpeechReport(BaseModel):
    """All that is known of a response; one that broke or was cancelled has less to tell."""

    id: str
    request: RequestReport
    finish_reason: FinishReason
    error: ErrorDetail | None = Field(description="What broke it; null where nothing did.")
    codes_sha256: str | None
    frames: int = Field(description="That were made.")
    audio_s: float = Field(description="Seconds of sound that were given.")
    timings: Timings | None
    nar: NarPlan | None = Field(
        description="How much of an utterance the finer levels drew at a time: `whole`, `windows`, "
        "or `chunks`, whose codes are those of the whole."
    )
    decoder: str | None = Field(description="What made sound of the codes: codec or vocos.")
    utterances: list[UtteranceReport] = Field(description="Those that came to their end.")


@dataclass(frozen=True, slots=True)
class Failure:
    """A speech that has no end.

    Args:
        error: What broke it; None where its client left or cancelled it.
        plan: The choices made, if it came so far.
        frames: That were made.
        audio_s: Seconds of sound that were given.
        utterances: Those that came to their end.
    """

    error: SpeechError | None
    plan: Plan | None
    frames: int
    audio_s: float
    utterances: tuple[SpokenUtterance, ...] = ()

    @property
    def finish_reason(self) -> FinishReason:
        """How it ended."""
        cancelled = self.error is None or isinstance(self.error, ReaderStalled)
        return "cancelled" if cancelled else "error"


class RecentSpeeches:
    """The last few jobs with their results. Who has the most is the one who loses the oldest."""

    def __init__(self, limit: int, *, log_text: bool = False) -> None:
        """Keep none yet.

        Args:
            limit: How many are kept; 0 keeps none.
            log_text: Whether what was said is also written to the log.
        """
        self._limit, self._log_text = limit, log_text
        self._kept: dict[str, tuple[SpeechJob, SpeechResult | Failure]] = {}  # the oldest first

    def keep(self, job: SpeechJob, outcome: SpeechResult | Failure) -> None:
        """Remember a job, and forget the oldest if there are too many."""
        if self._log_text:
            log.info("response %s: said %r", job.id, job.text, extra={"text": job.text})
        self._kept[job.id] = (job, outcome)
        while len(self._kept) > self._limit:
            of = Counter(kept.asker for kept, _ in self._kept.values())
            most = max(of.values())
            oldest = next(one for one, (kept, _) in self._kept.items() if of[kept.asker] == most)
            del self._kept[oldest]

    def find(self, job_id: str, owner: str) -> tuple[SpeechJob, SpeechResult | Failure]:
        """Return a job of somebody and what became of it.

        Raises:
            UnknownSpeech: It is not kept, or another's: nobody learns which.
        """
        kept = self._kept.get(job_id)
        if kept is None or kept[0].owner != owner:
            raise UnknownSpeech(
                f"no response of that id is kept; the last {self._limit} of this process are"
            )
        return kept

    def result(self, job_id: str, owner: str) -> SpeechResult:
        """Return the result of somebody's job.

        Raises:
            UnknownSpeech: It is not kept, another's, or has none.
        """
        _, outcome = self.find(job_id, owner)
        if isinstance(outcome, Failure):
            raise UnknownSpeech(f"the speech of that id has no end: {outcome.finish_reason}")
        return outcome
