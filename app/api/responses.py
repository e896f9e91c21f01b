"""Responses of the routes for the OpenAPI document, and the headers that describe a speech."""

from collections.abc import Collection, Sequence
from typing import Any, Final, TypeVar

from starlette.responses import Response

from app.api.schemas import ErrorBody, Usage
from app.audio.formats import MEDIA_TYPES
from app.engine.interface import Plan
from app.engine.job import SpeechJob, SpeechResult
from models.text.warnings import warnings_of
from samplers.knobs.needs import doubts, idle_knobs
from samplers.knobs.params import SamplingParams

EVENT_STREAM = "text/event-stream"

Responses = dict[int | str, dict[str, Any]]
AnyResponse = TypeVar("AnyResponse", bound=Response)


def error_responses(**reasons: str) -> Responses:
    """Return error responses for a route's OpenAPI entry: ``_404="Why."`` and so on."""
    return {
        int(status[1:]): {"model": ErrorBody, "description": reason}
        for status, reason in reasons.items()
    }


NOT_READY = error_responses(_503="Not ready; retry in Retry-After seconds.")
TEXT_RESPONSES: Responses = error_responses(
    _404="No such voice or model.",
    _413="The body is too large.",
    _415="The body is not JSON.",
    _422="A field is invalid; `param` names it.",
    _503="Busy or not ready; retry in Retry-After seconds.",
)
NDJSON: Final = "application/x-ndjson"

SAFETENSORS: Final = "application/vnd.safetensors"
"""Media type of codes as tensors `0`, `1` and so on, `[T, K]` each, an utterance each."""

CODES: Final[dict[str, Any]] = {"application/json": {}, SAFETENSORS: {}}
"""Codes in the OpenAPI document."""

SPEECH_RESPONSES: Responses = {
    200: {
        "description": "The audio; a stream is cut off if the speech fails.",
        "content": {media_type: {} for media_type in (*MEDIA_TYPES.values(), EVENT_STREAM)},
    },
    **TEXT_RESPONSES,
    **error_responses(
        _500="The speech could not be generated.",
        _504="The request exceeded the server's time limit.",
    ),
}

SPEECH_OR_CODES: Responses = SPEECH_RESPONSES | {
    200: SPEECH_RESPONSES[200]
    | {
        "description": "The audio, or codes; a stream is cut off if the speech fails.",
        "content": SPEECH_RESPONSES[200]["content"] | CODES | {NDJSON: {}},
    }
}

SPEECH_OR_LINES: Responses = SPEECH_RESPONSES | {
    200: {
        "description": "The audio, or lines of JSON with audio in base64 and timings.",
        "content": {
            media_type: {}
            for media_type in ("application/json", NDJSON, *MEDIA_TYPES.values(), EVENT_STREAM)
        },
    }
}


def opening_headers(plan: Plan, sample_rate_hz: int) -> dict[str, str]:
    """Return the headers that are known when the first audio is: of a streamed response."""
    return {
        "X-Seed": str(plan.seed),
        "X-Preset": plan.params.preset,
        "X-Voice": plan.voice.name,
        "X-NAR": plan.nar,
        "X-Decoder": plan.decoder,
        "X-Sample-Rate": str(sample_rate_hz),
    }


def result_headers(
    result: SpeechResult, sample_rate_hz: int, audio_s: float, first_audio_s: float
) -> dict[str, str]:
    """Return the headers of a whole response.

    Args:
        result: The engine's result.
        audio_s: Seconds of audio sent.
        first_audio_s: Seconds from the request to the first audio.
    """
    times, usage = result.timings, usage_of(result)
    stages = {
        "queue": times.queue_s,
        "text": times.text_s,
        "ar": times.ar_s,
        "nar": times.nar_s,
        "codec": times.codec_s,
        "total": times.total_s,
    }
    return {
        "X-Seed": str(result.seed),
        "X-Preset": result.params.preset,
        "X-Voice": result.voice,
        "X-NAR": result.nar,
        "X-Decoder": result.decoder,
        "X-Sample-Rate": str(sample_rate_hz),
        "X-Finish-Reason": result.finish_reason,
        "X-Backtracks": str(result.backtracks),
        "X-Codes-SHA256": result.codes_sha256,
        "X-Frames": str(result.frames),
        "X-Audio-Ms": f"{1000 * audio_s:.0f}",
        "X-Queue-Ms": f"{1000 * times.queue_s:.1f}",
        "X-TTFA-Ms": f"{1000 * first_audio_s:.1f}",
        "X-RTF": f"{result.real_time_factor:.3f}",
        "X-Prompt-Tokens": str(usage.input_tokens),
        "X-Completion-Tokens": str(usage.output_tokens),
        "Server-Timing": ", ".join(f"{n};dur={1000 * s:.1f}" for n, s in stages.items()),
    }


def naming_ignored(answer: AnyResponse, fields: Collection[str]) -> AnyResponse:
    """Return a response whose header names the request's fields that did nothing, if any."""
    named = [*filter(None, [answer.headers.get("X-Ignored")]), *fields]
    if named:
        answer.headers["X-Ignored"] = ", ".join(named)
    return answer


def naming_doubts(
    answer: AnyResponse, job: SpeechJob, language: str, params: SamplingParams
) -> AnyResponse:
    """Return a response whose headers name the knobs that did nothing, and tell of the rest.

    Args:
        job: What was asked for.
        language: Of the text.
        params: Resolved.
    """
    naming_ignored(answer, idle_knobs(params, job.params.model_fields_set))
    return naming_warnings(answer, [*warnings_of(job.text, language), *doubts(params)])


def naming_warnings(answer: AnyResponse, warnings: Sequence[str]) -> AnyResponse:
    """Return a response whose header tells what its author may not expect, if there is anything."""
    if warnings:
        told = "; ".join(warnings)
        answer.headers["X-Warning"] = told.encode("ascii", "replace").decode()
    return answer


def usage_of(result: SpeechResult) -> Usage:
    """Return the token counts of a speech."""
    phonemes = sum(len(utterance.phonemes) for utterance in result.utterances)
    return Usage.of(phonemes, result.frames)
