"""Voices: their upload as a form, and the routes that list, describe and delete them.

Files are read and written in threads.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal, TypeVar

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from app.api.errors import problems_of
from app.api.middleware.access.clients import client_of
from app.api.ranges import RANGES, ranged
from app.api.requests import media_type
from app.api.schemas import (
    NOT_READY,
    VoiceItem,
    VoiceList,
    VoiceNames,
    VoiceSummary,
    error_responses,
)
from app.api.services import EngineDep, services_of
from app.engine.engine import SpeechEngine
from app.engine.errors import EngineBusy, InvalidRequest
from app.engine.voices import Voices
from models.voices.voice import NAME_PATTERN, Voice, VoiceCard, named

_B = TypeVar("_B", bound=BaseModel)

FILE_FIELDS: Final = ("file", "audio_sample")
"""Names of the audio field: ours and OpenAI's."""

_PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
_MAX_FIELD_BYTES = 16_384
_SHOWN_CHARS = 64


class VoiceForm(BaseModel):
    """The text fields of a voice upload."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        pattern=NAME_PATTERN,
        description="The new voice's id: lower-case letters, digits, `_` and `-`. Of a name such as"
        " Anna B the id is anna-b, and the name the title.",
    )
    consent: bool = Field(description="`true`: the speaker consents to speech in this voice.")
    type: Literal["audio_sample"] = Field(
        "audio_sample", description="OpenAI's field; there is no other type."
    )
    language: str | None = Field(
        None,
        max_length=35,
        description="Language of the speaker, as for speech; default that of the default voice.",
    )
    transcript: str | None = Field(
        None,
        max_length=1000,
        pattern=_PRINTABLE,
        description="Transcript of the audio; stored with it.",
    )
    gender: Literal["", "female", "male", "neutral"] = Field("", description="Of the speaker.")
    accent: str = Field(
        "", max_length=100, pattern=_PRINTABLE, description="Of the speaker, as in British."
    )
    start_s: float | None = Field(
        None,
        ge=0,
        le=600,
        allow_inf_nan=False,
        description="Where in the recording to begin; default the beginning, of a recording over"
        " 30 s where it is best.",
    )
    title: str = Field("", max_length=100, pattern=_PRINTABLE, description="Display name.")
    description: str = Field(
        "", max_length=1000, pattern=_PRINTABLE, description="Description of the voice."
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, sent: Any) -> Any:
        """Make the id of a name that was typed, which becomes the title."""
        if not isinstance(sent, dict) or not isinstance(sent.get("name"), str):
            return sent
        name, title = named(sent["name"], sent.get("title") or "")
        return {**sent, "name": name, "title": title}

    @field_validator("consent", mode="before")
    @classmethod
    def _agreed(cls, consent: object) -> bool:
        """Accept nothing but "true": other spellings might mean something else."""
        if consent != "true":
            raise ValueError("the speaker's consent is required; send true to confirm it")
        return True


def form_schema() -> dict[str, Any]:
    """Return the JSON schema of the form for the OpenAPI document."""
    schema = VoiceForm.model_json_schema()
    schema["properties"]["consent"] = {"const": "true", "description": "The speaker consents."}
    audio = (
        "WAV, FLAC, MP3, OGG (Vorbis, Opus), M4A or WebM with speech, mono or stereo; at least 1 s,"
        " of more than 30 s the best."
    )
    for field in FILE_FIELDS:
        schema["properties"][field] = {"type": "string", "format": "binary", "description": audio}
    schema["oneOf"] = [{"required": [field]} for field in FILE_FIELDS]
    return schema


async def read_voice_form(
    request: Request, max_bytes: int, kind: type[_B], file_fields: Sequence[str] = FILE_FIELDS
) -> tuple[_B, bytes]:
    """Return the text fields of a kind and the audio of an upload, read into memory.

    `app.api.middleware.body` has enforced ``max_bytes``; nothing is spooled to disk. Raises
    HTTPException if the body is not a form, RequestValidationError if a field is invalid,
    InvalidRequest if one is unknown, repeated or of the wrong kind.
    """
    if media_type(request.headers) != "multipart/form-data":
        raise HTTPException(415, "send a form, with the header content-type: multipart/form-data")
    parser = MultiPartParser(
        request.headers,
        request.stream(),
        max_files=len(FILE_FIELDS),
        max_fields=2 * len(kind.model_fields),
        max_part_size=_MAX_FIELD_BYTES,
    )
    parser.spool_max_size = max_bytes
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise InvalidRequest(f"the form cannot be read: {error.message}") from error
    except (LookupError, UnicodeError) as error:
        raise HTTPException(415, "send the form in UTF-8, without a charset parameter") from error
    try:
        texts, audio = _separate(form, kind, file_fields)
        return kind.model_validate(texts), await audio.read()
    except ValidationError as error:
        raise RequestValidationError(problems_of(error)) from error
    finally:
        await form.close()


def _separate(
    form: FormData, kind: type[BaseModel], file_fields: Sequence[str]
) -> tuple[dict[str, str], UploadFile]:
    texts: dict[str, str] = {}
    files: dict[str, UploadFile] = {}
    for field, part in form.multi_items():
        shown = field[:_SHOWN_CHARS]
        if field not in file_fields and field not in kind.model_fields:
            known = ", ".join((*kind.model_fields, *file_fields))
            raise InvalidRequest(
                f"{shown}: there is no such field; the fields are {known}", param=shown
            )
        if field in texts or field in files:
            raise InvalidRequest(f"{field}: sent twice", param=field)
        if isinstance(part, UploadFile) != (field in file_fields):
            meant = "a file with a file name" if field in file_fields else "text, not a file"
            raise InvalidRequest(f"{field}: must be {meant}", param=field)
        if isinstance(part, UploadFile):
            files[field] = part
        else:
            texts[field] = part
    if len(files) != 1:
        problem = f"send {' or '.join(file_fields)}, not both" if files else "the audio is missing"
        raise InvalidRequest(f"{file_fields[0]}: {problem}", param=file_fields[0])
    return texts, next(iter(files.values()))


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
        """Describe a voice that its caller may use; prompts have at most ``prompt_s`` seconds."""
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


VoiceIdPath = Annotated[str, Path(alias="id", description="A voice's id.")]

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
    voice = await add_voice(request, engine, VoiceForm, lambda form: form)
    return VoiceDetail.of(voice, request.state.owner, engine.voices.prompt_s)


async def add_voice(
    request: Request,
    engine: SpeechEngine,
    kind: type[_B],
    ours: Callable[[_B], VoiceForm],
    file_fields: Sequence[str] = FILE_FIELDS,
) -> Voice:
    """Read an upload of a kind of form, that ``ours`` makes a `VoiceForm`, and store its voice."""
    with upload_place(request):
        max_bytes = services_of(request).settings.max_upload_bytes
        sent, content = await read_voice_form(request, max_bytes, kind, file_fields)
        form = ours(sent)
        voices = engine.voices
        fields = form.model_dump(include=set(VoiceCard.model_fields), exclude={"language"})
        card = VoiceCard(language=form.language or "", **fields)
        owner = request.state.owner
        await asyncio.to_thread(voices.check_new, form.name, card.language, owner)
        client = client_of(request)
        recording = await engine.recording(request.state.id, content, client, form.start_s)
        return await asyncio.to_thread(voices.add, form.name, card, recording, owner)


@voices_router.get("/v1/audio/voices", responses=NOT_READY)
async def list_voices(
    request: Request,
    engine: EngineDep,
    legacy: Annotated[
        Literal["true", "false"],
        Query(description="`true`: names alone, as older clients of Kokoro-FastAPI read them."),
    ] = "false",
) -> VoiceList | VoiceNames:
    """List the voices: built-in, uploaded for everybody or with this key, and OpenAI's names."""
    owner = request.state.owner
    default = engine.voices.default
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
    if legacy == "true":
        return VoiceNames(voices=[item.id for item in items])
    return VoiceList(voices=[*items, *map(_damaged, damaged)])


@voices_router.get("/v1/audio/voices/{id}", responses=_NOT_FOUND | NOT_READY)
async def get_voice(request: Request, name: VoiceIdPath, engine: EngineDep) -> VoiceDetail:
    """Describe a voice."""
    voices = engine.voices
    owner = request.state.owner
    voice = await asyncio.to_thread(voices.find, name, owner)
    return VoiceDetail.of(voice, owner, voices.prompt_s)


@voices_router.get(
    "/v1/audio/voices/{id}/audio",
    response_class=Response,
    responses={200: {"content": {"audio/flac": {}}}} | RANGES | _NOT_FOUND | NOT_READY,
)
async def get_voice_audio(request: Request, name: VoiceIdPath, engine: EngineDep) -> Response:
    """Return the recording that the model imitates, or the part that `Range` asks for."""
    content = await asyncio.to_thread(engine.voices.recording, name, request.state.owner)
    return ranged(request, Response(content, media_type="audio/flac"))


@voices_router.delete(
    "/v1/audio/voices/{id}",
    responses=_NOT_FOUND
    | error_responses(_403="The voice does not belong to this key.")
    | NOT_READY,
)
async def delete_voice(request: Request, name: VoiceIdPath, engine: EngineDep) -> VoiceDeleted:
    """Delete a voice that this key uploaded; speeches in progress are not affected."""
    voices: Voices = engine.voices
    await asyncio.to_thread(voices.remove, name, request.state.owner)
    return VoiceDeleted(id=name)


@contextmanager
def upload_place(request: Request) -> Iterator[None]:
    """Occupy one of the places for uploads."""
    places = services_of(request).limits.uploads
    client = client_of(request)
    if not places.free(client):
        raise EngineBusy("too many uploads at once", retry_after_s=_RETRY_AFTER_S)
    with places.held(client):
        yield


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
