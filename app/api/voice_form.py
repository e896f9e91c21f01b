"""The form that a voice is uploaded with: read strictly, every field of it known or refused."""

from typing import Any, Final, Literal

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from app.api.errors import problems_of
from app.api.gate.bodies import media_type
from app.engine.errors import InvalidRequest
from models.voices.voice import NAME_PATTERN

FILE_FIELDS: Final = ("file", "audio_sample")
"""What the audio may be called: ours, and OpenAI's."""

_PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
_MAX_FIELD_BYTES = 16_384
_SHOWN_CHARS = 64


class VoiceForm(BaseModel):
    """What is said of a voice that is uploaded."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        pattern=NAME_PATTERN,
        description="What `voice` will take: lower-case letters, digits, `_` and `-`.",
    )
    consent: bool = Field(
        description="`true`: the speaker agreed that speech is made in this voice."
    )
    type: Literal["audio_sample"] = Field(
        "audio_sample", description="What OpenAI's clients may say: a voice is made of audio."
    )
    language: str | None = Field(
        None, max_length=35, description="Language of the speaker; none is the model's first."
    )
    transcript: str | None = Field(
        None, max_length=1000, pattern=_PRINTABLE, description="What the audio says; kept with it."
    )
    title: str = Field("", max_length=100, pattern=_PRINTABLE, description="How people call it.")
    description: str = Field(
        "", max_length=1000, pattern=_PRINTABLE, description="How it sounds, where it is from."
    )

    @field_validator("consent", mode="before")
    @classmethod
    def _agreed(cls, consent: object) -> bool:
        """Take no voice from somebody who did not agree; what means it may mean something else.

        Raises:
            ValueError: It is not said that they did.
        """
        if consent != "true":
            raise ValueError("the speaker must have agreed; send true to say so")
        return True


def form_schema() -> dict[str, Any]:
    """Return the JSON schema of the form, for the OpenAPI document."""
    schema = VoiceForm.model_json_schema()
    audio = "WAV, FLAC, MP3 or OGG (Vorbis, Opus) of 1 to 30 s of speech, mono or stereo."
    for field in FILE_FIELDS:
        schema["properties"][field] = {"type": "string", "format": "binary", "description": audio}
    schema["oneOf"] = [{"required": [field]} for field in FILE_FIELDS]
    return schema


async def read_voice_form(request: Request, max_bytes: int) -> tuple[VoiceForm, bytes]:
    """Return what is said of a voice, and its audio.

    Args:
        request: Its body is read, in memory alone.
        max_bytes: More was refused before: nothing here goes to a file on the way.

    Raises:
        HTTPException: It is no form.
        RequestValidationError: A field is wrong.
        InvalidRequest: A field is unknown, or there twice, or of the wrong kind.
    """
    if media_type(request.headers) != "multipart/form-data":
        raise HTTPException(415, "send a form, with the header content-type: multipart/form-data")
    parser = MultiPartParser(
        request.headers,
        request.stream(),
        max_files=len(FILE_FIELDS),
        max_fields=2 * len(VoiceForm.model_fields),
        max_part_size=_MAX_FIELD_BYTES,
    )
    parser.spool_max_size = max_bytes
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise InvalidRequest(f"the form cannot be read: {error.message}") from error
    except (LookupError, UnicodeError) as error:
        raise HTTPException(415, "send a form in UTF-8, which needs no charset") from error
    try:
        texts, audio = _sorted(form)
        return VoiceForm.model_validate(texts), await audio.read()
    except ValidationError as error:
        raise RequestValidationError(problems_of(error)) from error
    finally:
        await form.close()


def _sorted(form: FormData) -> tuple[dict[str, str], UploadFile]:
    """Return the fields and the file.

    Raises:
        InvalidRequest: There is one too many, of the wrong kind, or no file.
    """
    texts: dict[str, str] = {}
    files: dict[str, UploadFile] = {}
    for field, part in form.multi_items():
        shown = field[:_SHOWN_CHARS]
        if field not in FILE_FIELDS and field not in VoiceForm.model_fields:
            known = ", ".join((*VoiceForm.model_fields, *FILE_FIELDS))
            raise InvalidRequest(f"{shown}: there is no such field; there are {known}", param=shown)
        if field in texts or field in files:
            raise InvalidRequest(f"{field}: given twice", param=field)
        if isinstance(part, UploadFile) != (field in FILE_FIELDS):
            kind = "a file, with a file name" if field in FILE_FIELDS else "text, not a file"
            raise InvalidRequest(f"{field}: must be {kind}", param=field)
        if isinstance(part, UploadFile):
            files[field] = part
        else:
            texts[field] = part
    if len(files) != 1:
        told = "give file or audio_sample, not both" if files else "the audio is missing"
        raise InvalidRequest(f"file: {told}", param="file")
    return texts, next(iter(files.values()))
