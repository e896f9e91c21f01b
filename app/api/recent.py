"""What became of the latest requests, for those who want to know more than fits in headers.

Kept in memory and bounded; touched on the event loop alone. Never logged: it holds texts.
"""

from collections import OrderedDict
from typing import Any

from pydantic import BaseModel, Field

from app.engine.errors import UnknownSpeech
from app.engine.job import (
    Backtrack,
    FinishReason,
    SpeechJob,
    SpeechResult,
    SpokenUtterance,
    Timings,
)
from samplers.params import SamplingParams
from samplers.trace import entries


class RequestReport(BaseModel):
    """What was asked for, every choice made."""

    input: str
    voice: str
    language: str
    max_duration_s: float | None = Field(description="As the request had it.")
    params: SamplingParams = Field(description="Every knob as it was used, preset and seed too.")


class UtteranceReport(BaseModel):
    """One piece of the text; the last three fields only where the request had `trace`."""

    codes: list[list[int]] = Field(description="One list a frame, its levels in order.")
    finish_reason: FinishReason
    backtracks: list[Backtrack] = Field(description="How often it was taken back, and why.")
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
    """All that is known of a response."""

    id: str
    request: RequestReport
    finish_reason: FinishReason
    codes_sha256: str
    frames: int
    audio_s: float
    timings: Timings
    utterances: list[UtteranceReport]


class RecentSpeeches:
    """The last few jobs with their results."""

    def __init__(self, limit: int) -> None:
        """Keep at most ``limit``; 0 keeps none."""
        self._limit = limit
        self._kept: OrderedDict[str, tuple[SpeechJob, SpeechResult]] = OrderedDict()

    def keep(self, job: SpeechJob, result: SpeechResult) -> None:
        """Remember a job, and forget the oldest if there are too many."""
        self._kept[job.id] = (job, result)
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def __getitem__(self, job_id: str) -> tuple[SpeechJob, SpeechResult]:
        """Return a job and its result.

        Raises:
            UnknownSpeech: It is not kept.
        """
        if job_id not in self._kept:
            raise UnknownSpeech(
                f"no response of that id is kept; the last {self._limit} of this process are"
            )
        return self._kept[job_id]


def report_json(job: SpeechJob, result: SpeechResult) -> str:
    """Return a `SpeechReport` as JSON; what is no finite number is null."""
    report = SpeechReport(
        id=job.id,
        request=RequestReport(
            input=job.text,
            voice=result.voice,
            language=result.language,
            max_duration_s=job.max_duration_s,
            params=result.params,
        ),
        finish_reason=result.finish_reason,
        codes_sha256=result.codes_sha256,
        frames=result.frames,
        audio_s=result.audio_s,
        timings=result.timings,
        utterances=[_utterance(utterance) for utterance in result.utterances],
    )
    return report.model_dump_json()


def _utterance(spoken: SpokenUtterance) -> UtteranceReport:
    tokens = None if spoken.trace is None else entries(spoken.trace)
    stayed = None if tokens is None else _stayed(tokens, spoken)
    return UtteranceReport(
        codes=spoken.codes.tolist(),
        finish_reason=spoken.finish_reason,
        backtracks=list(spoken.backtracks),
        tokens=tokens,
        scores=None if stayed is None else [token["score"] for token in stayed],
        logprobs=None if stayed is None else [token["logprob"] for token in stayed],
    )


def _stayed(tokens: list[dict[str, Any]], spoken: SpokenUtterance) -> list[dict[str, Any]]:
    """Leave out what was taken back: of draws for the same frame the last one stayed."""
    stayed: list[dict[str, Any]] = []
    for token in tokens:
        del stayed[token["frame"] :]
        stayed.append(token)
    return stayed[: len(spoken.codes) + (spoken.finish_reason == "stop")]
