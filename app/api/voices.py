"""Routes for uploaded voices: create, describe, delete. Files are read and written in threads."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from app.api.gate.admission import client_of
from app.api.requests import EngineDep
from app.api.responses import NOT_READY, error_responses
from app.api.voice_form import form_schema, read_voice_form
from app.engine.errors import EngineBusy
from app.engine.serving.shares import Places
from app.engine.voices import Voices
from models.voices.voice import Voice, VoiceCard

MAX_UPLOADS = 5
"""Uploads that may be read at once, as each is unpacked in memory. One client may have 4."""

_RETRY_AFTER_S = 2


class VoiceDetail(BaseModel):
    """All metadata of a voice."""

    object: Literal["audio.voice"] = "audio.voice"
    id: str = Field(description="Value for `voice`.")
    name: str = Field(description="Display name.")
    created_at: int = Field(description="Seconds since 1970; 0 if it came with the model.")
    language: str
    description: str
    transcript: str | None = Field(description="Transcript of its audio, if it was sent.")
    audio_s: float | None = Field(description="Seconds of stored audio; null if unknown.")
    prompt_s: float = Field(
        description="Seconds of it that the loaded model uses; 0 if the model cannot use uploaded"
        " voices."
    )
    kind: Literal["builtin", "shared", "own"] = Field(
        description="Whether it belongs to the model, to everybody, or to this key."
    )

    @classmethod
    def of(cls, voice: Voice, owner: str, prompt_s: float) -> "VoiceDetail":
        """Describe a voice.

        Args:
            voice: A voice that the caller may use.
            owner: The caller.
            prompt_s: Longest prompt of the loaded model in seconds.
        """
        return cls(
            id=voice.name,
            name=voice.title or voice.name,
            created_at=voice.created_at,
            language=voice.language,
            description=voice.description,
            transcript=voice.transcript,
            audio_s=voice.audio_s,
            prompt_s=round(min(prompt_s, voice.audio_s or prompt_s), 3),
            kind=_kind(voice, owner),
        )


class VoiceDeleted(BaseModel):
    """A voice was deleted with its audio."""

    object: Literal["audio.voice"] = "audio.voice"
    id: str
    deleted: Literal[True] = True


VoiceName = Annotated[str, Path(alias="id", description="A voice's id.")]

_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {"multipart/form-data": {"schema": form_schema()}},
    }
}
_NOT_FOUND = error_responses(_404="No such voice of this key.")

voices_router = APIRouter(tags=["voices"])


@voices_router.post(
    "/v1/audio/voices",
    openapi_extra=_UPLOAD,
    responses=error_responses(
        _403="The limit of voices is reached.",
        _409="A voice of that name exists.",
        _413="The upload is too large.",
        _415="The body is not a form.",
        _422="A field or the recording is invalid; `param` names it.",
    )
    | NOT_READY,
)
async def create_voice(request: Request, engine: EngineDep) -> VoiceDetail:
    """Upload a voice: a recording for the model to imitate."""
    voices, owner = engine.voices, _owner(request)
    with _upload_place(request):
        max_bytes: int = request.app.state.settings.max_upload_bytes
        form, content = await read_voice_form(request, max_bytes)
        fields = form.model_dump(include=set(VoiceCard.model_fields), exclude={"language"})
        card = VoiceCard(language=form.language or voices.default.language, **fields)
        voice = await asyncio.to_thread(voices.add, form.name, card, content, owner)
    return VoiceDetail.of(voice, owner, voices.prompt_s)


@voices_router.get("/v1/audio/voices/{id}", responses=_NOT_FOUND | NOT_READY)
async def get_voice(request: Request, name: VoiceName, engine: EngineDep) -> VoiceDetail:
    """Describe a voice."""
    voices, owner = engine.voices, _owner(request)
    voice = await asyncio.to_thread(voices.find, name, owner)
    return VoiceDetail.of(voice, owner, voices.prompt_s)


@voices_router.delete(
    "/v1/audio/voices/{id}",
    responses=_NOT_FOUND
    | error_responses(_403="The voice does not belong to this key.")
    | NOT_READY,
)
async def delete_voice(request: Request, name: VoiceName, engine: EngineDep) -> VoiceDeleted:
    """Delete a voice that this key uploaded; speeches in progress are not affected."""
    voices: Voices = engine.voices
    await asyncio.to_thread(voices.remove, name, _owner(request))
    return VoiceDeleted(id=name)


@contextmanager
def _upload_place(request: Request) -> Iterator[None]:
    """Occupy one of the places for uploads.

    Raises:
        EngineBusy: All of them, or all of this client's, are in use.
    """
    places: Places = request.app.state.uploads
    client = client_of(request)
    if not places.free(client):
        raise EngineBusy("too many uploads at once", retry_after_s=_RETRY_AFTER_S)
    with places.held(client):
        yield


def _owner(request: Request) -> str:
    return getattr(request.state, "owner", "")


def _kind(voice: Voice, owner: str) -> Literal["builtin", "shared", "own"]:
    if voice.owner is None:
        return "builtin"
    return "own" if voice.owner == owner else "shared"
