"""Kokoro-FastAPI's shape of a dialogue: turns, each with its voice."""

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.api.requests import body_schema, json_body
from app.api.schemas import (
    SPEAKABLE,
    SPEECH_RESPONSES,
    SoundFormatName,
    SpeechOptions,
    SpeechRequest,
)
from app.api.speech.route import answer_speech
from models.text.markup import MAX_PAUSE_S

_MOST_TURNS: Final = 1000
_TAG_NAME: Final = r"^[^\[\]\x00-\x1f\x7f]*[^\[\]\s\x00-\x1f\x7f][^\[\]\x00-\x1f\x7f]*$"


class Turn(BaseModel):
    """What one speaker says."""

    model_config = ConfigDict(extra="forbid")

    voice: str = Field(max_length=200, pattern=_TAG_NAME, description="A voice's name.")
    text: str = Field(description="What is said, with its markup.", json_schema_extra=SPEAKABLE)


class DialogueRequest(SpeechOptions):
    """A speech request with turns in place of a text."""

    model_config = ConfigDict(title="DialogueRequest")

    turns: tuple[Turn, ...] = Field(
        min_length=1, max_length=_MOST_TURNS, description="The turns, in order."
    )
    pause_between_turns: float = Field(
        0.0, ge=0, le=MAX_PAUSE_S, description="Seconds of silence between two turns."
    )
    response_format: SoundFormatName = Field("mp3", description="As for /v1/audio/speech.")
    stream: bool = Field(True, description="Whether it is sent while it is generated.")

    @property
    def text(self) -> str:
        """The turns as one text, with the markup that names their voices."""
        pause_ms = round(1000 * self.pause_between_turns)
        between = f" [pause:{pause_ms}ms] " if pause_ms else " "
        return between.join(f"[voice:{one.voice}] {one.text}" for one in self.turns)

    def speech(self) -> SpeechRequest:
        """Return the same as a request for speech."""
        given = self.model_fields_set & SpeechOptions.model_fields.keys()
        return SpeechRequest(
            input=self.text,
            response_format=self.response_format,
            stream=self.stream,
            **{name: getattr(self, name) for name in given},
        )


DialogueBody = Annotated[DialogueRequest, Depends(json_body(DialogueRequest))]

dialogue_router = APIRouter(tags=["other shapes"], responses=SPEECH_RESPONSES)


@dialogue_router.post(
    "/dev/dialogue", response_class=Response, openapi_extra=body_schema(DialogueRequest)
)
async def dialogue(request: Request, body: DialogueBody) -> Response:
    """Speak turns, each in its voice: by default streamed MP3."""
    return await answer_speech(request, body.speech())
