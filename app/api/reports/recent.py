"""Outcomes of the most recent speeches: the schema of their reports, a bounded store, and as bytes.

Use the store from the event loop only. Texts are not logged unless the operator enables that. As
bytes, what is small is JSON, and codes and traces are in numpy's own format without pickled
objects: what comes out of a shared store is data and never code.
"""

import io
import json
import logging
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, NamedTuple
from zipfile import ZipFile

import numpy as np
from pydantic import BaseModel, Field, TypeAdapter

from app.api.errors import RequestInProgress, speech_error_detail
from app.api.schemas import ContinueFrom, ErrorDetail, SpeechOptions
from app.engine.errors import InvalidRequest, ReaderStalled, SpeechError, UnknownSpeech
from app.engine.interface import Plan
from app.engine.job import (
    FinishReason,
    MadeBy,
    NarPlan,
    RankedTake,
    Resume,
    SpeechJob,
    SpeechResult,
    Timings,
    UtteranceInfo,
    UtteranceResult,
)
from samplers.ar.backtrack import Backtrack
from samplers.knobs.params import SamplingParams

log = logging.getLogger(__name__)

_MOST_IDS: Final = 4096


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
            plan.language if plan else job.language,
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
        self._kept: dict[str, tuple[SpeechJob, Outcome]] = {}  # oldest first
        self._ids: dict[str, Entry] = {}  # oldest first
        self._claims: dict[str, tuple[str, str]] = {}  # speech id -> key, digest

    def keep(self, job: SpeechJob, outcome: Outcome) -> None:
        """Store a job's outcome, evict if full, and end the claim of its request id."""
        self._remember(job, outcome)
        self.end(job.id, complete=isinstance(outcome, SpeechResult))

    def _remember(self, job: SpeechJob, outcome: Outcome) -> None:
        if self._log_text:
            log.info("response %s: said %r", job.id, job.text, extra={"text": job.text})
        self._kept[job.id] = (job, outcome)
        while len(self._kept) > self._limit:
            counts = Counter(kept.client for kept, _ in self._kept.values())
            largest = max(counts.values())
            del self._kept[
                next(one for one, (kept, _) in self._kept.items() if counts[kept.client] == largest)
            ]

    async def find(self, job_id: str, owner: str) -> tuple[SpeechJob, Outcome]:
        """Return an owner's job and its outcome.

        Raises UnknownSpeech if it is not stored or of another owner; the message does not say
        which.
        """
        kept = self._kept.get(job_id)
        if kept is None or kept[0].owner != owner:
            raise UnknownSpeech(
                f"no speech of that id is stored; this process keeps the last {self._limit}"
            )
        return kept

    async def complete(self, job_id: str, owner: str) -> tuple[SpeechJob, SpeechResult]:
        """Return an owner's job and its result.

        Raises UnknownSpeech as `find` does, and if the speech did not complete.
        """
        job, outcome = await self.find(job_id, owner)
        if isinstance(outcome, Failure):
            raise UnknownSpeech(f"the speech of that id did not complete: {outcome.finish_reason}")
        return job, outcome

    async def take(self, place: ContinueFrom | None, owner: str) -> Resume | None:
        """Return the utterances before a place of a speech, the last one cut there.

        Raises InvalidRequest if the speech has no such utterance, or that has fewer frames.
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
        return Resume((*before, last.kept(place.frame)), whole=len(before))

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


_LEVEL = 1  # of zlib: codes hardly shrink, and traces do at any level

MOST_BYTES = 2**28
"""Longest outcome, unpacked, that is read: more than that of half an hour with its traces."""

_JOB: Final = TypeAdapter(SpeechJob)
_OPTIONS: Final = TypeAdapter(SpeechOptions)
_OUTCOMES: Final[dict[str, TypeAdapter[Any]]] = {
    kind.__name__: TypeAdapter(kind) for kind in (SpeechResult, Failure)
}


def pack(job: SpeechJob, outcome: Outcome, *, traces: bool = True) -> bytes:
    """Return a job, without what it continues, and its outcome as bytes."""
    if not traces:
        spoken = tuple(replace(one, trace=None) for one in outcome.utterances)
        outcome = replace(outcome, utterances=spoken)
    arrays: list[np.ndarray[Any, Any]] = []
    kind = type(outcome).__name__
    head = {
        "job": _JOB.dump_python(job, mode="json", exclude={"params", "before", "kept"}),
        "params": _OPTIONS.dump_python(_options(job), mode="json", exclude_unset=True),
        "kind": kind,
        "outcome": _OUTCOMES[kind].dump_python(outcome, mode="json", context=arrays),
        "voices": [[word.voice for word in one.words or ()] for one in outcome.utterances],
    }
    text = np.frombuffer(json.dumps(head).encode(), np.uint8)
    file = io.BytesIO()
    np.savez(file, text, *arrays, allow_pickle=False)
    return zlib.compress(file.getvalue(), _LEVEL)


def unpack(packed: bytes, most_bytes: int = MOST_BYTES) -> tuple[SpeechJob, Outcome]:
    """Return what `pack` was given; raises ValueError if it is damaged, or of another version."""
    try:
        inflater = zlib.decompressobj()
        raw = inflater.decompress(packed, most_bytes)
        if not inflater.eof:
            raise ValueError(f"it is cut off, or has more than {most_bytes} bytes")
        with ZipFile(io.BytesIO(raw)) as file:
            if sum(one.file_size for one in file.infolist()) > len(raw):
                raise ValueError("its arrays are compressed twice")
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            text, *arrays = (file[f"arr_{number}"] for number in range(len(file.files)))
        head = json.loads(text.tobytes())
        params = _OPTIONS.validate_python(head["params"])
        job = _JOB.validate_python(head["job"] | {"params": params})
        read: Outcome = _OUTCOMES[head["kind"]].validate_python(head["outcome"], context=arrays)
        pairs = zip(read.utterances, head["voices"], strict=True)
        return job, replace(read, utterances=tuple(_said_by(*pair) for pair in pairs))
    except Exception as error:  # others may have written it: whatever fails, it is not one of ours
        raise ValueError(f"it cannot be read: {type(error).__name__}: {error}") from error


def _said_by(spoken: UtteranceResult, voices: list[str]) -> UtteranceResult:
    """Return an utterance with the voices of its words, which no JSON of a client has."""
    if spoken.words is None:
        return spoken
    pairs = zip(spoken.words, voices, strict=True)
    return replace(spoken, words=tuple(replace(word, voice=str(name)) for word, name in pairs))


def request_of(job: SpeechJob, outcome: Outcome) -> dict[str, Any]:
    """Return the body of a request that gives the same codes, but for its form and its stream.

    It has every knob as used, with preset and seed, and what else the request asked for.
    """
    asked: dict[str, Any] = _OPTIONS.dump_python(_options(job), mode="json", exclude_unset=True)
    asked.pop("model", None)
    chosen = {"input": job.text, "voice": outcome.voice, "language": outcome.language}
    knobs = outcome.params.model_dump(mode="json", include=set(SamplingParams.model_fields))
    return chosen | asked | knobs | {name: one for name, one in chosen.items() if one is not None}


def _options(job: SpeechJob) -> SpeechOptions:
    """Return a request's options, without its text and format, which job and caller have."""
    params = job.params
    own = {
        name: getattr(params, name)
        for name in params.model_fields_set & set(SpeechOptions.model_fields)
    }
    return SpeechOptions.model_construct(_fields_set=set(own), **own)
