"""Codes in place of sound: of recent speeches, of recordings, and sound made of codes."""

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final

import numpy as np
from fastapi import APIRouter, HTTPException, Query, Request, Response
from pydantic_core import from_json
from safetensors import SafetensorError
from safetensors.numpy import load

from app.api.lenient import utf8
from app.api.middleware.access.clients import client_of
from app.api.requests import (
    media_type,
)
from app.api.schemas import (
    CODES_CONTENT,
    SAFETENSORS,
    SPEECH_RESPONSES,
    TEXT_RESPONSES,
    SoundQuery,
)
from app.api.services import EngineDep, services_of
from app.api.speech.body_formats import WholeCodes, codes_body, rates_of
from app.api.speech.route import RecentDep, SpeechId, replayed
from app.engine.core import SpeechResult
from app.engine.errors import (
    InvalidRequest,
)
from app.engine.interface import ModelInfo

_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "utterances": {
                            "type": "array",
                            "items": {
                                "type": "array",
                                "items": {"type": "array", "items": {"type": "integer"}},
                            },
                        }
                    },
                    "required": ["utterances"],
                }
            },
            SAFETENSORS: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}

codes_router = APIRouter(tags=["speech"], responses=TEXT_RESPONSES)


@codes_router.get(
    "/v1/audio/speech/{id}/codes",
    response_class=Response,
    responses={200: {"content": CODES_CONTENT}},
)
async def get_speech_codes(
    request: Request, speech_id: SpeechId, recent: RecentDep, engine: EngineDep
) -> Response:
    """Return the codes of a recent speech, as JSON or, by `Accept`, as safetensors."""
    _, result = await recent.complete(speech_id, request.state.owner)
    body_format = WholeCodes(engine.info, tensors=SAFETENSORS in request.headers.get("accept", ""))
    pool = services_of(request).render_pool
    write = partial(body_format.whole, b"", result, result.audio_s)
    body = await pool.run(client_of(request), write)
    return Response(body, media_type=body_format.media_type)


@codes_router.post(
    "/v1/audio/codes",
    response_class=Response,
    responses={200: {"content": CODES_CONTENT}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"audio/*": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def encode_recording(request: Request, engine: EngineDep) -> Response:
    """Return the codes of a recording: the body is a WAV, FLAC, MP3 or OGG file of at least 1 s.

    Of more than 30 s the 30 s with most speech are encoded.

    Raises:
        HTTPException: The media type is that of something else.
    """
    kind = media_type(request.headers)
    if kind and kind != "application/octet-stream" and not kind.startswith("audio/"):
        raise HTTPException(415, "send audio, with the header content-type: audio/wav or its own")
    content = await request.body()
    codes = await engine.encode(request.state.id, content, client_of(request))
    tensors = SAFETENSORS in request.headers.get("accept", "")
    sent = SAFETENSORS if tensors else "application/json"
    fields = {"codes": codes.tolist()}
    body = codes_body(sent, rates_of(engine.info), [codes], fields)
    return Response(body, media_type=sent)


@codes_router.post(
    "/v1/audio/speech/{id}/audio",
    response_class=Response,
    responses=SPEECH_RESPONSES,
    openapi_extra=_BODY,
)
async def decode_codes(
    request: Request,
    speech_id: SpeechId,
    engine: EngineDep,
    recent: RecentDep,
    wanted: Annotated[SoundQuery, Query()],
) -> Response:
    """Return the audio of codes sent in place of those of a recent speech.

    Pauses, speed and loudness are those of that speech.
    """
    asked, result = await recent.complete(speech_id, request.state.owner)
    kind = media_type(request.headers)
    count = len(result.utterances)
    # In the render pool, and counted first: lists in place of codes take milliseconds to read.
    read = partial(_read, await request.body(), kind, count)
    pool = services_of(request).render_pool
    changed = _replaced(result, await pool.run(client_of(request), read), engine.info)
    return await replayed(request, asked.job, changed, wanted.response_format)


def _replaced(
    result: SpeechResult, arrays: list[np.ndarray[Any, Any]], info: ModelInfo
) -> SpeechResult:
    """Return a result with other codes."""
    checked = [_checked(array, number, info) for number, array in enumerate(arrays)]
    frames = sum(map(len, checked))
    pairs = zip(result.utterances, checked, strict=True)
    spoken = tuple(replace(one, codes=codes, words=None) for one, codes in pairs)
    return replace(result, utterances=spoken, frames=frames)


def _read(body: bytes, kind: str, count: int) -> list[np.ndarray[Any, Any]]:
    """Return the codes of each of so many utterances."""
    try:
        if kind == SAFETENSORS:
            tensors = load(body)
            _check_count(len(tensors), count)
            return [tensors[str(number)] for number in range(count)]
        if kind != "application/json":
            raise HTTPException(415, f"send JSON or {SAFETENSORS}")
        sent = from_json(utf8(body))
        if not isinstance(sent, dict) or set(sent) != {"utterances"}:
            raise InvalidRequest("send an object with `utterances`", param="utterances")
        _check_count(len(sent["utterances"]), count)
        return [np.array(one) for one in sent["utterances"]]
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise InvalidRequest("the codes cannot be read", param="utterances") from error


def _check_count(sent: int, count: int) -> None:
    if sent != count:
        raise InvalidRequest(
            f"{sent} utterances were sent, the speech has {count}", param="utterances"
        )


def _checked(codes: np.ndarray[Any, Any], number: int, info: ModelInfo) -> Any:
    """Return codes ``[T, K]`` as int16."""
    if codes.size == 0:
        return np.zeros((0, info.levels), np.int16)
    if codes.ndim != 2 or codes.dtype.kind not in "iu" or not 1 <= codes.shape[1] <= info.levels:
        raise InvalidRequest(
            f"utterance {number}: the codes must be integers [T, K], K from 1 to {info.levels}",
            param="utterances",
        )
    if codes.min() < 0 or codes.max() >= info.codes:
        raise InvalidRequest(
            f"utterance {number}: a code is not from 0 to {info.codes - 1}", param="utterances"
        )
    return codes.astype(np.int16)
