"""`POST /dev/captioned_speech`, in the shape of Kokoro-FastAPI: audio with the times of words."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import ConfigDict, Field
from starlette.responses import StreamingResponse

from app.api.gate.admission import client_of
from app.api.requests import (
    EngineDep,
    SettingsDep,
    body_schema,
    check_model,
    ignored_fields,
    json_body,
    model_names,
    output_of,
)
from app.api.responses import NDJSON, SPEECH_OR_LINES, naming_ignored
from app.api.schemas import SpeechRequest
from app.api.shapes.words import timed_words


class CaptionedRequest(SpeechRequest):
    """A speech request with the fields that Kokoro-FastAPI's clients send beside it."""

    model_config = ConfigDict(title="CaptionedRequest")

    stream: bool | None = Field(True, description="Whether a line is sent for each part.")
    return_timestamps: bool = Field(True, description="Whether words have their times.")
    return_download_link: bool | None = Field(None, description="Does nothing.")
    lang_code: str | None = Field(None, max_length=35, description="Does nothing.")
    volume_multiplier: float | None = Field(None, description="Does nothing.")
    normalization_options: Any = Field(None, description="Does nothing.")


Body = Annotated[CaptionedRequest, Depends(json_body(CaptionedRequest))]

captioned_router = APIRouter(tags=["other shapes"], responses=SPEECH_OR_LINES)


@captioned_router.post("/dev/captioned_speech", openapi_extra=body_schema(CaptionedRequest))
async def captioned_speech(
    request: Request, body: Body, engine: EngineDep, settings: SettingsDep
) -> Response:
    """Speak a text with the times of its words: one JSON object, or one a line."""
    check_model(body.model, engine.info.name, model_names(settings))
    ignored = ignored_fields(body, settings, request.state.id)
    timed = body.model_copy(update={"timestamps": "word" if body.return_timestamps else "none"})
    job = timed.job(request.state.id, request.state.owner, client_of(request))
    parts = timed_words(request, engine, job, output_of(job, body.response_format))
    first = await anext(parts)  # so that a refusal is an answer

    async def objects() -> AsyncIterator[dict[str, Any]]:
        async with aclosing(parts):
            yield _part(body, *first)
            async for part in parts:
                yield _part(body, *part)

    if body.stream is not False:
        lines = (json.dumps(one) + "\n" async for one in objects())
        answer: Response = StreamingResponse(lines, media_type=NDJSON)
    else:
        every = [first, *[part async for part in parts]]
        sound = b"".join(piece for piece, _ in every)
        words = [word for _, told in every for word in told]
        whole = json.dumps(_part(body, sound, words))
        answer = Response(whole, media_type="application/json")
    return naming_ignored(answer, ignored)


def _part(body: CaptionedRequest, sound: bytes, words: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "audio": b64encode(sound).decode(),
        "audio_format": body.response_format,
        "timestamps": words if body.return_timestamps else None,
    }
