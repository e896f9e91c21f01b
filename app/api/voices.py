"""Routes for voices: list, upload, describe, delete. Files are read and written in threads."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field

from app.api.gate.admission import client_of
from app.api.requests import EngineDep
from app.api.responses import NOT_READY, error_responses
from app.api.schemas import VoiceItem, VoiceList, VoiceSummary
from app.api.voice_form import VoiceForm, form_schema, read_voice_form
from app.engine.admission import Places
from app.engine.engine import SpeechEngine
from app.engine.errors import EngineBusy
from app.engine.voices import Voices
from models.voices.voice import Voice, VoiceCard

MAX_UPLOADS = 5
"""Uploads that may be read at once, as each is unpacked in memory. One client may have 4."""

_RETRY_AFTER_S = 2


class VoiceDetail(VoiceSummary):
    """All metadata of a voice."""

    object: Literal["audio.voice"] = "audio.voice"
    created_at: int = Field(description="Seconds since 1970; 0 if it came with the model.")
    transcript: str | None = Field(description="Transcript of its audio, if it was sent.")
    audio_s: float | None = Field(description="Seconds of stored audio; null if unknown.")
    prompt_s: float = Field(
        description="Seconds of it that the loaded model uses; 0 if the model cannot use uploaded"
        " voices."
    )

    warnings: list[str] = Field(
        description="What may spoil the voice, found when it was uploaded: noise, music, no speech,"
        " a narrow band."
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
            **_summary(voice, owner),
            warnings=list(voice.warnings),
            created_at=voice.created_at,
            transcript=voice.transcript,
            audio_s=voice.audio_s,
            prompt_s=round(min(prompt_s, voice.audio_s or prompt_s), 3),
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
UPLOAD_RESPONSES = (
    error_responses(
        _403="The limit of voices is reached.",
        _409="A voice of that name exists.",
        _413="The upload is too large.",
        _415="The body is not a form.",
        _422="A field or the recording is invalid; `param` names it.",
    )
    | NOT_READY
)
_NOT_FOUND = error_responses(_404="No such voice of this key.")

voices_router = APIRouter(tags=["voices"])


@voices_router.post(
    "/v1/audio/voices",
    openapi_extra=_UPLOAD,
    responses=UPLOAD_RESPONSES,
)
async def create_voice(request: Request, engine: EngineDep) -> VoiceDetail:
    """Upload a voice: a recording for the model to imitate."""
    with upload_place(request):
        max_bytes: int = request.app.state.settings.max_upload_bytes
        form, content = await read_voice_form(request, max_bytes, VoiceForm)
        voice = await add_voice(request, engine, form, content)
    return VoiceDetail.of(voice, _owner(request), engine.voices.prompt_s)


async def add_voice(
    request: Request, engine: SpeechEngine, form: VoiceForm, content: bytes
) -> Voice:
    """Store the voice of an upload; a place for it must be held."""
    voices = engine.voices
    fields = form.model_dump(include=set(VoiceCard.model_fields), exclude={"language"})
    card = VoiceCard(language=form.language or voices.default.language, **fields)
    owner = _owner(request)
    return await asyncio.to_thread(voices.add, form.name, card, content, owner, form.start_s)


@voices_router.get("/v1/audio/voices", responses=NOT_READY)
async def list_voices(request: Request, engine: EngineDep) -> VoiceList:
    """List the voices: built-in, uploaded for everybody or with this key, and OpenAI's names."""
    owner, default = _owner(request), engine.voices.default
    named = await asyncio.to_thread(engine.voices.named, owner)
    damaged = await asyncio.to_thread(engine.voices.damaged, owner)
    items = [
        VoiceItem(
            **_summary(voice, owner) | ({} if name == voice.name else {"id": name, "name": name}),
            is_default=name == default.name,
            alias_of=None if name == voice.name else voice.name,
            damaged=False,
        )
        for name, voice in named.items()
    ]
    return VoiceList(voices=[*items, *map(_damaged, damaged)])


@voices_router.get("/v1/audio/voices/{id}", responses=_NOT_FOUND | NOT_READY)
async def get_voice(request: Request, name: VoiceName, engine: EngineDep) -> VoiceDetail:
    """Describe a voice."""
    voices, owner = engine.voices, _owner(request)
    voice = await asyncio.to_thread(voices.find, name, owner)
    return VoiceDetail.of(voice, owner, voices.prompt_s)


@voices_router.get(
    "/v1/audio/voices/{id}/audio",
    response_class=Response,
    responses={200: {"content": {"audio/flac": {}}}} | _NOT_FOUND | NOT_READY,
)
async def get_voice_audio(request: Request, name: VoiceName, engine: EngineDep) -> Response:
    """Return the recording that the model imitates, to listen to."""
    content = await asyncio.to_thread(engine.voices.recording, name, _owner(request))
    return Response(content, media_type="audio/flac")


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
def upload_place(request: Request) -> Iterator[None]:
    """Occupy one of the places for uploads."""
    places: Places = request.app.state.uploads
    client = client_of(request)
    if not places.free(client):
        raise EngineBusy("too many uploads at once", retry_after_s=_RETRY_AFTER_S)
    with places.held(client):
        yield


def _owner(request: Request) -> str:
    return getattr(request.state, "owner", "")


def _damaged(name: str) -> VoiceItem:
    """Return the description of an upload that cannot be read."""
    return VoiceItem(
        id=name,
        name=name,
        language="",
        gender="",
        accent="",
        description="Damaged; delete it and upload it again.",
        kind="own",
        is_default=False,
        alias_of=None,
        damaged=True,
    )


def _summary(voice: Voice, owner: str) -> dict[str, Any]:
    """Return the fields of `VoiceSummary` of a voice that an owner of keys may use."""
    card = voice.model_dump(include={"language", "gender", "accent", "description"})
    kind = "builtin" if voice.owner is None else "own" if voice.owner == owner else "shared"
    return card | {"id": voice.name, "name": voice.title or voice.name, "kind": kind}
