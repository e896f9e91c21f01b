"""Kokoro-FastAPI's routes that write a text as phonemes, and that speak phonemes.

The phonemes are those of the loaded model, which differ from Kokoro's own.
"""

import re
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.api.requests import body_schema, json_body
from app.api.schemas import (
    SPEAKABLE,
    SPEECH_RESPONSES,
    TEXT_RESPONSES,
    PhonemesRequest,
    TtsRequest,
    VoiceName,
)
from app.api.services import EngineDep
from app.api.speech.route import answer_speech, read_text

_LANGUAGES: Final = {
    "a": "en-US",
    "b": "en-GB",
    "e": "es",
    "f": "fr",
    "h": "hi",
    "i": "it",
    "j": "ja",
    "p": "pt",
    "z": "zh",
}
"""Kokoro's letters for languages."""

_SENTENCE_ENDS: Final = re.compile(r"(?<=[.!?])\s+")
_NO_BRACKETS: Final = r"^[^\[\]]*[^\[\]\s][^\[\]]*$"


class PhonemizeRequest(BaseModel):
    """Kokoro-FastAPI's request for the phonemes of a text."""

    model_config = ConfigDict(extra="forbid", title="PhonemizeRequest")

    text: str = Field(description="The text.", json_schema_extra=SPEAKABLE)
    language: str = Field(
        "a", max_length=35, description="A letter of Kokoro's for a language, or as for speech."
    )


class Phonemized(BaseModel):
    """A text as phonemes."""

    phonemes: str = Field(
        description="Phonemes of the loaded model, its sentences one after another."
    )
    tokens: list[int] = Field(description="Always empty.")


class PhonemeSpeechRequest(BaseModel):
    """Kokoro-FastAPI's request to speak phonemes."""

    model_config = ConfigDict(extra="forbid", title="PhonemeSpeechRequest")

    phonemes: str = Field(
        min_length=1, pattern=_NO_BRACKETS, description="Phonemes, as /dev/phonemize returns them."
    )
    voice: VoiceName = Field(None, description="As for speech.")


PhonemizeBody = Annotated[PhonemizeRequest, Depends(json_body(PhonemizeRequest))]
PhonemeSpeechBody = Annotated[PhonemeSpeechRequest, Depends(json_body(PhonemeSpeechRequest))]

phonemes_router = APIRouter(tags=["other shapes"])


@phonemes_router.post(
    "/dev/phonemize", responses=TEXT_RESPONSES, openapi_extra=body_schema(PhonemizeRequest)
)
async def phonemize(request: Request, body: PhonemizeBody, engine: EngineDep) -> Phonemized:
    """Write a text as phonemes."""
    language = _LANGUAGES.get(body.language, body.language)
    read = await read_text(request, PhonemesRequest(input=body.text, language=language), engine)
    spoken = (one.phonemes for one in read.utterances if one.phonemes)
    return Phonemized(phonemes=" ".join(spoken), tokens=[])


@phonemes_router.post(
    "/dev/generate_from_phonemes",
    response_class=Response,
    responses=SPEECH_RESPONSES,
    openapi_extra=body_schema(PhonemeSpeechRequest),
)
async def speak_phonemes(request: Request, body: PhonemeSpeechBody) -> Response:
    """Speak phonemes: a whole WAV."""
    # A line each, or all sentences were one, which may be too long.
    lines = (f"[[{one}]]" for one in _SENTENCE_ENDS.split(body.phonemes.strip()))
    return await answer_speech(request, TtsRequest(input="\n".join(lines), voice=body.voice))
