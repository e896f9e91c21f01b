"""Exceptions to HTTP: every failure has the body `{"error": {"message", "type", "param", "code"}}`.

The only module that maps exceptions to HTTP statuses.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import count
from typing import Any, ClassVar, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from app.api import paths
from app.api.schemas import ErrorBody, ErrorDetail, SpeechRequest
from app.engine.errors import (
    DeadlineExceeded,
    Forbidden,
    GenerationFailed,
    InvalidRequest,
    ReaderStalled,
    SpeechError,
    Unavailable,
    UnknownModel,
    UnknownSpeech,
    UnknownVoice,
    VoiceExists,
)


class TooManyRequests(Unavailable):
    """A client exceeds its rate limit or its limit of concurrent requests."""

    code: ClassVar[str] = "rate_limit_exceeded"


class TooManySessions(Unavailable):
    """All sessions, or all of the client's, are open."""

    code: ClassVar[str] = "too_many_sessions"


class StateUnavailable(Unavailable):
    """What all processes share cannot be asked, and the operator lets nothing pass without."""

    code: ClassVar[str] = "state_unavailable"


class RequestInProgress(Unavailable):
    """A request with the same `x-request-id` is in progress."""

    code: ClassVar[str] = "request_in_progress"


STATUS: Mapping[type[SpeechError], int] = {
    InvalidRequest: 422,
    UnknownVoice: 404,
    UnknownModel: 404,
    UnknownSpeech: 404,
    VoiceExists: 409,
    Forbidden: 403,
    Unavailable: 503,
    TooManyRequests: 429,
    RequestInProgress: 409,
    DeadlineExceeded: 504,
    ReaderStalled: 504,
    GenerationFailed: 500,
}

_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    408: "body_timeout",
    413: "body_too_large",
    415: "unsupported_media_type",
}
CLOSE = {"Connection": "close"}
"""Headers of a refusal after which the rest of the request is not read."""

FIRST_ERROR = 400  # the first status of errors
CLIENT_CLOSED = 499
"""Status in the access log when the client has left; nginx's convention. It is never sent."""

_MEANT = {
    "text": "input",
    "prompt": "input",
    "speaker": "voice",
    "speaker_id": "voice",
    "voice_id": "voice",
    "model_id": "model",
    "format": "response_format",
    "output_format": "response_format",
    "lang": "language",
    "language_code": "language",
    "language_id": "language",
    "cfg_scale": "cfg_strength",
    "cfg_weight": "cfg_strength",
    "guidance_scale": "cfg_strength",
    "repeat_penalty": "repetition_penalty",
    "return_timestamps": "timestamps",
    "word_timestamps": "timestamps",
    "logprobs": "top_logprobs",
}
"""Fields of other servers, and what they are called here."""

_UPLOAD = "voices are uploaded first: docs/voices.md"
_OURS = {
    **dict.fromkeys(
        (
            *("ref_audio", "ref_text", "ref_audio_2", "reference_audio", "reference_text"),
            *("references", "speaker_wav", "speaker_audio", "speaker_embedding", "voice_prompt"),
            *("audio_prompt", "audio_prompt_path", "prompt_audio", "prompt_text", "voice_clone"),
            "x_vector_only_mode",
        ),
        _UPLOAD,
    ),
    "task_type": f"the only task is CustomVoice; {_UPLOAD}",
    "items": "a request has one text; `valle-serve batch` speaks a file of requests: docs/cli.md",
    "max_tokens": "max_duration_s bounds a speech",
    "do_sample": "temperature 0 draws the likeliest code",
    "emotion": "the models take no emotions",
    "exaggeration": "the models take no emotions",
}
"""Fields of other servers, and what serves their purpose here."""

_PATTERNS = {
    "[a-z0-9][a-z0-9_-]": "may have up to 64 lower-case letters, digits, - and _, and begins with a"
    " letter or digit",
    "x7f": "may have no control characters",
}
"""Parts of the patterns of fields, and what these allow."""

_SHOWN_CHARS = 100
_CLOSE = 0.75  # difflib ratio of a typing error; less is another word
_SHOWN_PROBLEMS = 8
_PROBLEM_CHARS = 400
_MOST_PROBLEMS = 1000
_MESSAGE_CHARS = 2000
_GUESSED = 4
"""Number of unknown fields for which a similar name is suggested; a search takes a millisecond."""


def error_response(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return an error response with the standard body."""
    detail = error_detail(status, message, param=param, code=code)
    return JSONResponse(ErrorBody(error=detail).model_dump(), status, headers=dict(headers or {}))


def error_detail(
    status: int, message: str, *, param: str | None = None, code: str | None = None
) -> ErrorDetail:
    """Return the content of an error body, shortened; ``param`` is the field at fault."""
    kind: Literal["invalid_request_error", "server_error"] = (
        "invalid_request_error" if status < 500 else "server_error"
    )
    return ErrorDetail(
        message=_shown(message, _MESSAGE_CHARS),
        type=kind,
        param=param and _shown(param),
        code=code,
    )


def speech_error_detail(error: SpeechError) -> ErrorDetail:
    """Return the error body's content for an error of the engine."""
    return error_detail(
        speech_error_status(error), error.message, param=error.param, code=error.code
    )


def speech_error_status(error: SpeechError) -> int:
    """Return the HTTP status of an error of the engine."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def validation_error_detail(problems: Sequence[Mapping[str, Any]]) -> ErrorDetail:
    """Return the error body's content for pydantic's problems; the message has the first 8."""
    first = problems[0]
    guesses = count()
    sentences = [
        _shown(_sentence(one, guesses), _PROBLEM_CHARS) for one in problems[:_SHOWN_PROBLEMS]
    ]
    if len(problems) > _SHOWN_PROBLEMS:
        sentences.append(f"and {len(problems) - _SHOWN_PROBLEMS} more")
    message = "; ".join(sentences)
    return error_detail(422, message, param=_field(first) or None, code=first["type"])


def problems_of(error: ValidationError) -> list[dict[str, Any]]:
    """Return pydantic's problems without the values that were sent, which may be large.

    Raises InvalidRequest if they are too many to list, which would block the event loop.
    """
    if (count := error.error_count()) > _MOST_PROBLEMS:
        raise InvalidRequest(f"{count} values are invalid, too many to list")
    return [*map(dict, error.errors(include_url=False, include_context=False, include_input=False))]


def invalid(error: ValidationError) -> InvalidRequest:
    """Return the error of the engine for pydantic's, for protocols with messages of their own."""
    detail = validation_error_detail(problems_of(error))
    return InvalidRequest(detail.message, param=detail.param)


def install(app: FastAPI) -> None:
    """Register the exception handlers of an application."""
    app.add_exception_handler(SpeechError, _speech_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _client_left)


async def _speech_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SpeechError)
    return speech_error_response(error)


def speech_error_response(error: SpeechError) -> JSONResponse:
    """Return the error response for an error of the engine."""
    headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, Unavailable) else None
    body = ErrorBody(error=speech_error_detail(error)).model_dump()
    return JSONResponse(body, speech_error_status(error), headers=headers)


async def _validation_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return JSONResponse(ErrorBody(error=validation_error_detail(error.errors())).model_dump(), 422)


async def _client_left(_: Request, error: Exception) -> Response:
    """Return a response that nobody receives: the client left before its body was read."""
    assert isinstance(error, ClientDisconnect)
    return Response(status_code=CLIENT_CLOSED)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = error.status_code
    headers = error.headers
    message = str(error.detail)
    if status in {404, 405}:
        path = request.url.path
        routes = request.app.routes
        if status == 405 and path in paths.ELSEWHERE:  # another path has a parameter in its place
            status = 404
            headers = None
            message = "not found"
        message = f"{request.method} {_shown(path)}: {message.lower()}"
        if status == 405:
            methods = ", ".join(paths.allowed(routes, path))
            headers = {"Allow": methods}
            message += f"; it has {methods}"
        elif better := paths.hint(routes, path):
            message += f"; {better}"
    return error_response(status, message, code=_CODES.get(status), headers=headers)


def _field(problem: Mapping[str, Any]) -> str:
    """Return the dotted name of the field at fault; empty for the whole body."""
    place: Sequence[str | int] = problem["loc"]
    if len(place) > 1 and place[0] in {"query", "path"}:  # prefix that FastAPI adds
        place = place[1:]
    return _shown(".".join(map(str, place)))


def _sentence(problem: Mapping[str, Any], guesses: Iterator[int]) -> str:
    field = _field(problem)
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        near = []
        if len(field) <= _SHOWN_CHARS and next(guesses) < _GUESSED:
            alike = [name for name in SpeechRequest.model_fields if name[0] == field[:1]]
            near = get_close_matches(field, alike, n=1, cutoff=_CLOSE)
        near = [_MEANT[field]] if field in _MEANT else near
        message = f"there is no such field{f', did you mean {near[0]}?' if near else ''}"
        if field in SpeechRequest.model_fields:
            message = "there is no such field here; a body of POST /v1/audio/speech has it"
        if field in _OURS:
            message = f"there is no such field: {_OURS[field]}"
    elif problem["type"] == "string_pattern_mismatch":
        message = next((words for part, words in _PATTERNS.items() if part in message), message)
    return f"{field}: {message}" if field else message


def _shown(text: str, most: int = _SHOWN_CHARS) -> str:
    """Return a text, which may come from a client, cut to a maximum length."""
    return text if len(text) <= most else text[:most] + "..."
