"""Lists of voices, the user, and the upload of a voice, in ElevenLabs' shape.

Source: ElevenLabs' API reference, as its Python client sends requests and reads the answers.
"""

import asyncio
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.api.errors import problems_of
from app.api.schemas import NOT_READY, error_responses
from app.api.services import EngineDep, services_of
from app.api.voices import UPLOAD_RESPONSES, VoiceForm, add_voice
from app.compat.elevenlabs.speech import VoiceId
from app.engine.engine import SpeechEngine
from app.engine.errors import InvalidRequest
from models.voices.voice import Voice, id_of


class ElevenLabsVoice(BaseModel):
    """A voice, in ElevenLabs' shape."""

    voice_id: str
    name: str
    category: str = Field(description="`premade`, or `cloned` if it was uploaded.")
    description: str
    labels: dict[str, str]
    preview_url: None = None
    settings: None = None
    available_for_tiers: list[str] = []
    high_quality_base_model_ids: list[str] = []
    created_at_unix: int
    is_owner: bool


class ElevenLabsVoices(BaseModel):
    """All voices of the caller, in ElevenLabs' shape."""

    voices: list[ElevenLabsVoice]


class ElevenLabsVoicePage(ElevenLabsVoices):
    """The same, on one page."""

    has_more: bool = False
    total_count: int
    next_page_token: None = None


class VoiceAdded(BaseModel):
    """The name of an uploaded voice."""

    voice_id: str
    requires_verification: bool = False


class ElevenLabsVoiceForm(BaseModel):
    """The text fields of ElevenLabs' upload of a voice."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=100)
    description: str = ""
    labels: str = "{}"
    remove_background_noise: str | None = None
    consent: str | None = None

    def ours(self) -> VoiceForm:
        """Return the same fields as ours: the speaker's consent may be a label.

        Raises InvalidRequest if the labels are no JSON object.
        """
        labels = _read(self.labels)
        if isinstance(labels, str):  # their package encodes what it is given, a text of JSON too
            labels = _read(labels)
        if labels is None:  # as it encodes what it is not given
            labels = {}
        if not isinstance(labels, dict):
            raise InvalidRequest("labels: must be a JSON object", param="labels")
        given = {
            "name": id_of(self.name),
            "title": self.name,
            "description": self.description,
            "consent": labels.get("consent", "") if self.consent is None else self.consent,
            "language": labels.get("language"),
        }
        try:
            return VoiceForm.model_validate(given)
        except ValidationError as error:
            raise RequestValidationError(problems_of(error)) from error


def _read(sent: str) -> Any:
    """Return JSON as data; False if it is none."""
    try:
        return json.loads(sent or "{}")
    except ValueError:
        return False


_FILE = "files"
_TEXT = {"type": "string"}
_PLAIN = r"[^\x00-\x1f\x7f]"
_NAME = f"^{_PLAIN}*[A-Za-z0-9]{_PLAIN}*$"
_WORD = r'"[^"\\\x00-\x1f\x7f]*"'
_LABELS = rf"^(\{{({_WORD}: ?{_WORD}(, ?{_WORD}: ?{_WORD})*)?\}})?$"
_CONSENT = r'^\{"consent": ?"true"[,}]'
_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["name", _FILE],
                    "properties": {
                        "name": _TEXT | {"minLength": 1, "maxLength": 100, "pattern": _NAME},
                        _FILE: {
                            "type": "array",
                            "items": _TEXT | {"format": "binary"},
                            "minItems": 1,
                            "maxItems": 1,
                        },
                        "description": _TEXT | {"maxLength": 1000, "pattern": f"^{_PLAIN}*$"},
                        "labels": _TEXT
                        | {
                            "pattern": _LABELS,
                            "description": "A JSON object of strings; its `consent` is the"
                            " speaker's where there is no such field.",
                        },
                        "remove_background_noise": _TEXT | {"description": "Does nothing."},
                        "consent": {"const": "true", "description": "The speaker consents."},
                    },
                    "anyOf": [
                        {"required": ["consent"]},
                        {"required": ["labels"], "properties": {"labels": {"pattern": _CONSENT}}},
                    ],
                    "additionalProperties": False,
                }
            }
        },
    }
}

elevenlabs_voices_router = APIRouter(tags=["other shapes"])


@elevenlabs_voices_router.get("/v1/voices", responses=NOT_READY)
async def elevenlabs_voices(request: Request, engine: EngineDep) -> ElevenLabsVoices:
    """List the voices as ElevenLabs would."""
    return ElevenLabsVoices(voices=await _voices(request, engine))


_NO_VOICE = error_responses(_404="No such voice of this key.")


@elevenlabs_voices_router.get("/v1/voices/{voice_id}", responses=_NO_VOICE | NOT_READY)
async def elevenlabs_voice(request: Request, voice: VoiceId, engine: EngineDep) -> ElevenLabsVoice:
    """Describe a voice as ElevenLabs would, under any of its names."""
    owner: str = request.state.owner
    found = await asyncio.to_thread(engine.voices.find, voice, owner)
    return _voice(found.name if voice.lower() == found.name else voice, found, owner)


class TheirVoiceDeleted(BaseModel):
    """A voice was deleted, in ElevenLabs' shape."""

    status: Literal["ok"] = "ok"


@elevenlabs_voices_router.delete(
    "/v1/voices/{voice_id}",
    responses=_NO_VOICE
    | error_responses(_403="The voice does not belong to this key.")
    | NOT_READY,
)
async def elevenlabs_delete_voice(
    request: Request, voice: VoiceId, engine: EngineDep
) -> TheirVoiceDeleted:
    """Delete a voice that this key uploaded, as ElevenLabs would."""
    await asyncio.to_thread(engine.voices.remove, voice, request.state.owner)
    return TheirVoiceDeleted()


@elevenlabs_voices_router.get("/v2/voices", responses=NOT_READY)
async def elevenlabs_voice_page(
    request: Request,
    engine: EngineDep,
    search: Annotated[str, Query(max_length=200)] = "",
) -> ElevenLabsVoicePage:
    """List the voices, or those whose name or description has a word, as ElevenLabs would."""
    found = [
        one
        for one in await _voices(request, engine)
        if search.lower() in f"{one.voice_id} {one.name} {one.description}".lower()
    ]
    return ElevenLabsVoicePage(voices=found, total_count=len(found))


@elevenlabs_voices_router.get("/v1/user")
async def elevenlabs_user(request: Request) -> dict[str, Any]:
    """Tell who asks, and that nothing is counted, as ElevenLabs would."""
    owner = request.state.owner or "anybody"
    return {
        "user_id": owner,
        "workspace_id": owner,
        "first_name": owner,
        "is_new_user": False,
        "is_onboarding_completed": True,
        "is_onboarding_checklist_completed": True,
        "can_use_delayed_payment_methods": False,
        "created_at": 0,
        "subscription": {
            "tier": "self-hosted",
            "status": "active",
            "character_count": 0,
            "character_limit": 2**31 - 1,
            "can_extend_character_limit": False,
            "allowed_to_extend_character_limit": False,
            "voice_slots_used": 0,
            "voice_limit": services_of(request).settings.max_voices,
            "can_use_instant_voice_cloning": True,
            "can_use_professional_voice_cloning": False,
        },
    }


@elevenlabs_voices_router.post(
    "/v1/voices/add",
    openapi_extra=_UPLOAD,
    responses=UPLOAD_RESPONSES,
)
async def elevenlabs_add_voice(request: Request, engine: EngineDep) -> VoiceAdded:
    """Upload a voice as ElevenLabs would; the speaker's consent is a field or a label."""
    voice = await add_voice(
        request, engine, ElevenLabsVoiceForm, ElevenLabsVoiceForm.ours, (_FILE,)
    )
    return VoiceAdded(voice_id=voice.name)


async def _voices(request: Request, engine: SpeechEngine) -> list[ElevenLabsVoice]:
    """Return the voices of the caller under all their names."""
    owner: str = request.state.owner
    named = await asyncio.to_thread(engine.voices.named, owner)
    return [_voice(name, voice, owner) for name, voice in named.items()]


def _voice(name: str, voice: Voice, owner: str) -> ElevenLabsVoice:
    """Return the description of a voice under one of its names."""
    return ElevenLabsVoice(
        voice_id=name,
        name=(voice.title or voice.name) if name == voice.name else name,
        category="premade" if voice.owner is None else "cloned",
        description=voice.description,
        labels={"language": voice.language},
        created_at_unix=voice.created_at,
        is_owner=voice.owner is not None and voice.owner == owner,
    )
