"""Voices of one's own: uploaded, looked at, deleted.

Files are read and written in other threads, never on the event loop.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from app.api.answers import NOT_READY, error_answers
from app.api.gate.askers import asker
from app.api.routes import EngineDep
from app.api.voice_form import form_schema, read_voice_form
from app.engine.errors import EngineBusy
from app.engine.serving.shares import Places
from app.engine.voices import Voices
from models.voices.voice import Voice, VoiceCard

MAX_UPLOADS = 5
"""Uploads that may be read at once: each is held in memory, and unpacked. One asker may have 4."""

_RETRY_AFTER_S = 2


class VoiceDetail(BaseModel):
    """All that is known of a voice."""

    object: Literal["audio.voice"] = "audio.voice"
    id: str = Field(description="What `voice` takes.")
    name: str = Field(description="For people.")
    created_at: int = Field(description="Seconds since 1970; 0 if it came with the model.")
    language: str
    description: str
    transcript: str | None = Field(description="What its audio says, if that was told.")
    audio_s: float | None = Field(description="Seconds that are kept; null if not recorded.")
    prompt_s: float = Field(
        description="Seconds of it that the loaded model hears; where 0, it cannot speak as an"
        " uploaded voice."
    )
    kind: Literal["builtin", "shared", "own"] = Field(
        description="Whether it came with the model, is everybody's, or belongs to this key."
    )

    @classmethod
    def of(cls, voice: Voice, owner: str, prompt_s: float) -> "VoiceDetail":
        """Describe a voice to somebody.

        Args:
            voice: One that they can see.
            owner: Who asks.
            prompt_s: What the loaded model hears at most.
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
    """A voice is gone, with its audio."""

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
_NOT_FOUND = error_answers(_404="No such voice of this key.")

voices_router = APIRouter(tags=["voices"])


@voices_router.post(
    "/v1/audio/voices",
    openapi_extra=_UPLOAD,
    responses=error_answers(
        _403="No more voices are taken.",
        _409="The name is not free.",
        _413="The upload is too large.",
        _415="The body is no form.",
        _422="A field is wrong, or the audio cannot be a voice; `param` names it.",
    )
    | NOT_READY,
)
async def create_voice(request: Request, engine: EngineDep) -> VoiceDetail:
    """Keep a voice: a recording that the model will imitate."""
    voices, owner = engine.voices, _owner(request)
    with _place(request):
        max_bytes: int = request.app.state.settings.max_upload_bytes
        form, content = await read_voice_form(request, max_bytes)
        said = form.model_dump(include=set(VoiceCard.model_fields), exclude={"language"})
        card = VoiceCard(language=form.language or voices.default.language, **said)
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
    responses=_NOT_FOUND | error_answers(_403="It is not yours to delete.") | NOT_READY,
)
async def delete_voice(request: Request, name: VoiceName, engine: EngineDep) -> VoiceDeleted:
    """Delete a voice that this key uploaded; what is being spoken with it goes on."""
    voices: Voices = engine.voices
    await asyncio.to_thread(voices.remove, name, _owner(request))
    return VoiceDeleted(id=name)


@contextmanager
def _place(request: Request) -> Iterator[None]:
    """Hold a place of those for uploads.

    Raises:
        EngineBusy: There is none, or none of who asks.
    """
    places: Places = request.app.state.uploads
    who = asker(request)
    if not places.free(who):
        raise EngineBusy("other voices are being uploaded", retry_after_s=_RETRY_AFTER_S)
    with places.held(who):
        yield


def _owner(request: Request) -> str:
    return getattr(request.state, "owner", "")


def _kind(voice: Voice, owner: str) -> Literal["builtin", "shared", "own"]:
    if voice.owner is None:
        return "builtin"
    return "own" if voice.owner == owner else "shared"
