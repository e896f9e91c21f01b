"""The report of a speech: its schema, and the outcome of one that did not complete."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from app.api.errors import speech_error_detail
from app.api.schemas import ErrorDetail, SpeechOptions
from app.engine.core import MadeBy, NarPlan, Plan, SpeechJob, SpeechResult, Timings
from app.engine.errors import ReaderStalled, SpeechError
from app.engine.results import FinishReason, RankedTake, UtteranceInfo, UtteranceResult
from samplers.ar.backtrack import Backtrack
from samplers.knobs.params import SamplingParams


class RequestReport(BaseModel):
    """The request with all defaults resolved."""

    input: str
    voice: str | None = Field(description="Null if it ended before a voice was chosen.")
    language: str | None = Field(description="Null if it ended before a language was chosen.")
    max_duration_s: float | None = Field(description="As in the request.")
    params: SamplingParams = Field(description="Every knob as used, with preset and seed.")


@dataclass(frozen=True, slots=True, kw_only=True)
class UtteranceReport(UtteranceInfo):
    """One utterance of the text; the last three fields are null without `trace`."""

    codes: Annotated[
        list[list[int]], Field(description="One list per frame, with its levels in order.")
    ]
    finish_reason: FinishReason
    backtracks: Annotated[list[Backtrack], Field(description="Each rewind, and its cause.")]
    takes: Annotated[
        list[RankedTake],
        Field(
            description="The candidates of best_of, beam search or branching, if there were"
            " several; see docs/samplers.md."
        ),
    ]
    tokens: Annotated[
        list[dict[str, int | float | bool | None]] | None,
        Field(
            description="One record per draw, rewound ones and the stop included; see"
            " docs/trace.md."
        ),
    ]
    scores: Annotated[
        list[float | None] | None,
        Field(
            description="Log-probability of each token kept, under the distribution it was drawn"
            " from; 0 if greedy."
        ),
    ]
    logprobs: Annotated[
        list[float | None] | None,
        Field(description="Log-probability of each token kept, under the model's own logits."),
    ]


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
        description="How the NAR levels were decoded: the `whole` utterance, `windows`, "
        "or `chunks`, whose codes are those of `whole`."
    )
    decoder: str | None = Field(description="Decoder of codes to audio: codec or vocos.")
    made_by: MadeBy | None = Field(
        description="What made it; null if it ended before it was planned."
    )
    warnings: list[str] = Field(
        description="What was read otherwise than may be meant: letters left out, another language,"
        " sounds in brackets; `X-Warning` of the response."
    )
    left_out: list[str] = Field(
        description="What of the text the voice does not read, as it was written, each but once;"
        " the first 50."
    )
    utterances: list[UtteranceReport] = Field(description="The utterances that completed.")


class AskedSpeech(NamedTuple):
    """A speech as it was asked for: the engine's job, and the options of its request."""

    job: SpeechJob
    options: SpeechOptions


@dataclass(frozen=True, slots=True)
class Failure:
    """Outcome of a speech that did not complete: a `SpeechResult` as far as it is known."""

    error: ErrorDetail | None  # None if the client disconnected or cancelled
    finish_reason: FinishReason  # `cancelled` or `error`
    voice: str | None
    language: str | None
    params: SamplingParams
    frames: int
    audio_s: float
    utterances: tuple[UtteranceResult, ...] = ()
    nar: NarPlan | None = None  # without it, voice, language and knobs are as requested
    decoder: str | None = None
    left_out: tuple[str, ...] = ()
    made_by: MadeBy | None = None
    codes_sha256: None = None
    timings: None = None

    @classmethod
    def of(
        cls,
        job: SpeechJob,
        plan: Plan | None,
        error: SpeechError | None,
        frames: int,
        audio_s: float,
        utterances: tuple[UtteranceResult, ...] = (),
    ) -> "Failure":
        """Return the outcome of a job; without a plan it had not been resolved."""
        cancelled = error is None or isinstance(error, ReaderStalled)
        return cls(
            speech_error_detail(error) if error else None,
            "cancelled" if cancelled else "error",
            plan.voice.name if plan else job.voice,
            plan.language if plan else job.reading.language,
            plan.params if plan else job.params,
            frames,
            audio_s,
            utterances,
            plan.nar if plan else None,
            plan.decoder if plan else None,
            plan.left_out if plan else (),
            plan.made_by if plan else None,
        )


Outcome = SpeechResult | Failure
