"""Speech with the times of its words, in the shape of Kokoro-FastAPI."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import ConfigDict, Field

from app.api.requests import body_schema, json_body
from app.api.schemas import SPEECH_OR_LINES, SoundFormatName, SpeechRequest
from app.api.speech.route import answer_speech
from app.compat.timed_words import TimedJson
from app.engine.results import WordTimes


class CaptionedRequest(SpeechRequest):
    """A speech request with the fields that Kokoro-FastAPI's clients send beside it."""

    model_config = ConfigDict(title="CaptionedRequest")

    response_format: SoundFormatName = Field("mp3", description="As for /v1/audio/speech.")
    stream: bool | None = Field(True, description="Whether a line is sent for each part.")
    stream_format: Literal["audio"] = Field("audio", description="Does nothing.")
    return_timestamps: bool = Field(True, description="Whether words have their times.")
    allow_voice_tags: bool | None = Field(
        None,
        description="Whether words tell their `voice`; `[voice:NAME]` is always read.",
    )


CaptionedBody = Annotated[CaptionedRequest, Depends(json_body(CaptionedRequest))]

captioned_router = APIRouter(tags=["other shapes"], responses=SPEECH_OR_LINES)


@captioned_router.post("/dev/captioned_speech", openapi_extra=body_schema(CaptionedRequest))
async def captioned_speech(request: Request, body: CaptionedBody) -> Response:
    """Speak a text with the times of its words: one JSON object, or one a line."""
    timed = body.model_copy(update={"timestamps": "word" if body.return_timestamps else "none"})

    def part(sound: bytes, words: Sequence[WordTimes]) -> dict[str, Any]:
        return {
            "audio": b64encode(sound).decode(),
            "audio_format": body.response_format,
            "timestamps": _captions(words, body) if body.return_timestamps else None,
        }

    return await answer_speech(request, timed, TimedJson(part, streamed=timed.streamed))


def _captions(words: Sequence[WordTimes], body: CaptionedRequest) -> list[dict[str, Any]]:
    """Return Kokoro-FastAPI's object of each word that the sound has."""
    voices = body.allow_voice_tags
    return [
        {
            "word": word.shown,
            "start_time": round(word.start_s / body.speed, 4),
            "end_time": round((word.end_s or word.start_s) / body.speed, 4),
        }
        | ({} if voices is None else {"voice": word.voice if voices else None})
        for word in words
        if not word.missing
    ]
