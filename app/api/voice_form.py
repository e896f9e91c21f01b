"""The form of a voice upload, validated strictly."""

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeVar

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from app.api.errors import problems_of
from app.api.gate.limits import media_type
from app.engine.errors import InvalidRequest
from models.voices.voice import NAME_PATTERN

B = TypeVar("B", bound=BaseModel)

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
        description="The new voice's id: lower-case letters, digits, `_` and `-`.",
    )
    consent: bool = Field(description="`true`: the speaker consents to speech in this voice.")
    type: Literal["audio_sample"] = Field(
        "audio_sample", description="OpenAI's field; there is no other type."
    )
    language: str | None = Field(
        None,
        max_length=35,
        description="Language of the speaker; default that of the default voice.",
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
    audio = (
        "WAV, FLAC, MP3, OGG (Vorbis, Opus), M4A or WebM with speech, mono or stereo; at least 1 s,"
        " of more than 30 s the best."
    )
    for field in FILE_FIELDS:
        schema["properties"][field] = {"type": "string", "format": "binary", "description": audio}
    schema["oneOf"] = [{"required": [field]} for field in FILE_FIELDS]
    return schema


async def read_voice_form(
    request: Request, max_bytes: int, kind: type[B], file_fields: Sequence[str] = FILE_FIELDS
) -> tuple[B, bytes]:
    """Return the text fields and the audio of an upload.

    Args:
        request: Its body is read into memory.
        max_bytes: Limit that `app.api.gate.limits` has enforced; nothing is spooled to disk.
        kind: The text fields.
        file_fields: Names that the audio may have.

    Raises:
        HTTPException: The body is not a form.
        RequestValidationError: A field is invalid.
        InvalidRequest: A field is unknown, repeated or of the wrong kind.
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
    """Return the text fields and the file."""
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
