"""Responses of the routes for the OpenAPI document, and media types."""

from typing import Any, Final

from app.api.schemas import ErrorBody
from app.audio.formats import MEDIA_TYPES

EVENT_STREAM: Final = "text/event-stream"

Responses = dict[int | str, dict[str, Any]]


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
TABLES: Final = {"csv": "text/csv", "jsonl": NDJSON, "parquet": "application/vnd.apache.parquet"}

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
