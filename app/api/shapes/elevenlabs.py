"""Speech, lists of voices, the user, and the upload of a voice, in ElevenLabs' shape.

Source: ElevenLabs' API reference, as its Python client sends requests and reads the answers.
"""

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, get_args

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.api.errors import problems_of
from app.api.requests import (
    body_schema,
    check_model,
    dictionaries_of,
    json_body,
    model_names,
)
from app.api.schemas import NOT_READY, SPEAKABLE, SPEECH_OR_LINES, SpeechRequest, error_responses
from app.api.services import EngineDep, Services, ServicesDep, services_of
from app.api.shapes.words import TimedCharacter, TimedJson, timed_characters
from app.api.speech.route import speak
from app.api.voices import UPLOAD_RESPONSES, VoiceForm, add_voice
from app.audio.formats import OPUS_RATES, AudioFormat, SampleRate
from app.engine.engine import SpeechEngine
from app.engine.errors import InvalidRequest
from app.engine.job import WordTimes
from models.voices.voice import Voice, id_of

_FORMAT: Final = re.compile(r"(mp3|opus|pcm|wav|ulaw|alaw)_(\d{4,5})(?:_\d{1,3})?")
_THEIR_MODELS: Final = re.compile(r"eleven_\w{1,60}")
DEFAULT_FORMAT: Final = "mp3_44100_128"
_LOCATORS = "pronunciation_dictionary_locators"
_IDLE = {"stability", "similarity_boost", "style", "use_speaker_boost"}


class VoiceSettings(BaseModel):
    """ElevenLabs' settings of a voice; only `speed` does anything here."""

    model_config = ConfigDict(extra="forbid")

    speed: float | None = Field(None, ge=0.25, le=4, description="Playback speed.")
    stability: float | None = None
    similarity_boost: float | None = None
    style: float | None = None
    use_speaker_boost: bool | None = None


class ElevenLabsRequest(BaseModel):
    """ElevenLabs' request; fields without a description are accepted and do nothing."""

    model_config = ConfigDict(extra="forbid", title="ElevenLabsRequest")

    text: str = Field(description="The text to speak.", json_schema_extra=SPEAKABLE)
    model_id: str | None = Field(
        None, max_length=200, description="A model's name, or any of ElevenLabs'."
    )
    language_code: str | None = Field(None, max_length=35, description="Language of the text.")
    seed_: int | None = Field(None, alias="seed", ge=0, le=2**32 - 1, description="Seed.")
    voice_settings: VoiceSettings | None = Field(None, description="Only `speed` is used.")
    pronunciation_dictionary_locators: list[Any] | None = Field(
        None, description="Names of pronunciation dictionaries of this server, as their ids."
    )
    previous_text: str | None = None
    next_text: str | None = None
    previous_request_ids: list[str] | None = None
    next_request_ids: list[str] | None = None
    use_pvc_as_ivc: bool | None = None
    apply_text_normalization: str | None = None
    apply_language_text_normalization: bool | None = None
    audio_effects: Any = None

    def ignored(self) -> list[str]:
        """Return the names of the fields that were sent and do nothing."""
        used = {"text", "model_id", "language_code", "seed_", "voice_settings", _LOCATORS}
        sent = [name for name in self.model_fields_set - used if getattr(self, name) is not None]
        settings = self.voice_settings
        if settings is not None:
            sent += [name for name in _IDLE if getattr(settings, name) is not None]
        return sorted(sent)


def output_format(name: str) -> tuple[AudioFormat, SampleRate]:
    """Return the format and sample rate that one of ElevenLabs' names means.

    Raises InvalidRequest if there is none here, and says which there are.
    """
    match = _FORMAT.fullmatch(name)
    forms: tuple[AudioFormat, ...] = get_args(AudioFormat)
    rates: tuple[SampleRate, ...] = get_args(SampleRate)
    form = next((one for one in forms if match and one == match[1]), None)
    rate = next((one for one in rates if match and one == int(match[2])), None)
    if form is None or rate is None:
        raise InvalidRequest(
            f"{name[:40]!r} cannot be made: mp3, opus, pcm, wav, ulaw and alaw can, as in"
            f" pcm_16000, at {', '.join(map(str, rates))} Hz",
            param="output_format",
        )
    return form, rate


def check_their_model(name: str | None, services: Services) -> None:
    """Do nothing if a name is ElevenLabs' or the loaded model's."""
    if name is None or not _THEIR_MODELS.fullmatch(name):
        check_model(name, services.engine.info.name, model_names(services.settings))


VoiceId = Annotated[str, Path(alias="voice_id", max_length=200, description="A voice's name.")]
_FORMATS: Final = {
    "pattern": rf"^((mp3|pcm|wav|ulaw|alaw)_({'|'.join(map(str, get_args(SampleRate)))})"
    rf"|opus_({'|'.join(map(str, OPUS_RATES))}))(_[0-9]{{1,3}})?$"
}
Form = Annotated[str, Query(alias="output_format", max_length=40, json_schema_extra=_FORMATS)]
Body = Annotated[ElevenLabsRequest, Depends(json_body(ElevenLabsRequest))]


def translated(
    request: Request,
    body: Body,
    voice: VoiceId,
    services: ServicesDep,
    form: Form = DEFAULT_FORMAT,
) -> SpeechRequest:
    """Return ElevenLabs' request in our shape, not streamed, and note what of it does nothing."""
    check_their_model(body.model_id, services)
    speed = body.voice_settings.speed if body.voice_settings else None
    sound, rate = output_format(form)
    given = {"seed": body.seed_, "language": body.language_code, "speed": speed}
    request.state.ignored = body.ignored()
    return SpeechRequest(
        input=body.text,
        voice=voice,
        response_format=sound,
        sample_rate=rate,
        dictionaries=dictionaries_of(body.pronunciation_dictionary_locators or ()),
        stream=False,
        **{name: value for name, value in given.items() if value is not None},
    )


TranslatedDep = Annotated[SpeechRequest, Depends(translated)]

_SCHEMA = body_schema(ElevenLabsRequest)
elevenlabs_router = APIRouter(tags=["other shapes"], responses=SPEECH_OR_LINES)


@elevenlabs_router.post("/v1/text-to-speech/{voice_id}", openapi_extra=_SCHEMA)
async def elevenlabs_speech(request: Request, wanted: TranslatedDep) -> Response:
    """Speak a text, whole, as ElevenLabs would."""
    return await _speak(request, wanted)


@elevenlabs_router.post("/v1/text-to-speech/{voice_id}/stream", openapi_extra=_SCHEMA)
async def elevenlabs_stream(request: Request, wanted: TranslatedDep) -> Response:
    """Speak a text while it is generated, as ElevenLabs would."""
    return await _speak(request, wanted, stream=True)


@elevenlabs_router.post("/v1/text-to-speech/{voice_id}/with-timestamps", openapi_extra=_SCHEMA)
async def elevenlabs_timestamps(request: Request, wanted: TranslatedDep) -> Response:
    """Speak a text, whole, with the times of its characters, as ElevenLabs would."""
    return await _speak(request, wanted, timestamps="word")


@elevenlabs_router.post(
    "/v1/text-to-speech/{voice_id}/stream/with-timestamps", openapi_extra=_SCHEMA
)
async def elevenlabs_stream_timestamps(request: Request, wanted: TranslatedDep) -> Response:
    """Speak a text while it is generated, a JSON object a line, with the times of characters."""
    return await _speak(request, wanted, stream=True, timestamps="word")


async def _speak(request: Request, wanted: SpeechRequest, **changed: Any) -> Response:
    """Return the response to a changed request; with timestamps, in ElevenLabs' JSON."""
    wanted = wanted.model_copy(update=changed)

    def part(sound: bytes, words: Sequence[WordTimes]) -> dict[str, Any]:
        return _part(sound, words, wanted.speed)

    timed = wanted.timestamps == "word"
    framing = TimedJson(part, streamed=wanted.streamed) if timed else None
    return await speak(request, wanted, framing)


def _part(sound: bytes, words: Sequence[WordTimes], speed: float) -> dict[str, Any]:
    """Return ElevenLabs' object for bytes and words."""
    return {
        "audio_base64": b64encode(sound).decode(),
        "alignment": _alignment(timed_characters(words, speed)),
        "normalized_alignment": _alignment(timed_characters(words, speed, normalised=True)),
    }


def _alignment(characters: Sequence[TimedCharacter]) -> dict[str, Any] | None:
    if not characters:
        return None
    return {
        "characters": [one.character for one in characters],
        "character_start_times_seconds": [round(one.start_s, 4) for one in characters],
        "character_end_times_seconds": [round(one.end_s, 4) for one in characters],
    }


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
