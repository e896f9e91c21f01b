"""Speech in ElevenLabs' shape.

Source: ElevenLabs' API reference, as its Python client sends requests and reads the answers.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, get_args

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.api.requests import (
    body_schema,
    check_model,
    json_body,
    model_names,
)
from app.api.schemas import SPEAKABLE, SPEECH_OR_LINES, SpeechRequest
from app.api.services import Services, ServicesDep
from app.api.speech.route import answer_speech
from app.audio.formats import OPUS_RATES, AudioFormat
from app.compat.timed_words import TimedCharacter, TimedJson, timed_characters
from app.engine.core import SampleRate
from app.engine.errors import InvalidRequest
from app.engine.results import WordTimes

_FORMAT: Final = re.compile(r"(mp3|opus|pcm|wav|ulaw|alaw)_(\d{4,5})(?:_\d{1,3})?")
_THEIR_MODELS: Final = re.compile(r"eleven_\w{1,60}")
DEFAULT_FORMAT: Final = "mp3_44100_128"
_LOCATOR = "pronunciation_dictionary_id"
_LOCATORS = "pronunciation_dictionary_locators"
_IDLE = {"stability", "similarity_boost", "style", "use_speaker_boost"}
IDLE_QUERY: Final = ("enable_logging", "optimize_streaming_latency")
"""Parameters of ElevenLabs' addresses that are accepted and do nothing."""


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
        """Return the names of the fields that were sent and do nothing, in no order."""
        used = {"text", "model_id", "language_code", "seed_", "voice_settings", _LOCATORS}
        sent = [name for name in self.model_fields_set - used if getattr(self, name) is not None]
        settings = self.voice_settings
        if settings is not None:
            sent += [name for name in _IDLE if getattr(settings, name) is not None]
        return sent


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


def dictionaries_of(locators: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of the pronunciation dictionaries that ElevenLabs' locators mean.

    Raises InvalidRequest if one has no id.
    """
    names = [one.get(_LOCATOR) if isinstance(one, Mapping) else None for one in locators]
    if not all(isinstance(name, str) for name in names):
        raise InvalidRequest(
            f"each locator needs a {_LOCATOR}, which is the name of a dictionary of this server",
            param="pronunciation_dictionary_locators",
        )
    return tuple(map(str, names))


def check_their_model(name: str | None, services: Services) -> None:
    """Do nothing if a name is ElevenLabs' or the loaded model's."""
    if name is not None and not _THEIR_MODELS.fullmatch(name):
        check_model(name, services.engine.info.name, model_names(services.settings))


VoiceId = Annotated[str, Path(alias="voice_id", max_length=200, description="A voice's name.")]
_FORMATS: Final = {
    "pattern": rf"^((mp3|pcm|wav|ulaw|alaw)_({'|'.join(map(str, get_args(SampleRate)))})"
    rf"|opus_({'|'.join(map(str, OPUS_RATES))}))(_[0-9]{{1,3}})?$"
}
Form = Annotated[str, Query(alias="output_format", max_length=40, json_schema_extra=_FORMATS)]
ElevenLabsBody = Annotated[ElevenLabsRequest, Depends(json_body(ElevenLabsRequest))]


def translated(
    request: Request,
    body: ElevenLabsBody,
    voice: VoiceId,
    services: ServicesDep,
    form: Form = DEFAULT_FORMAT,
) -> SpeechRequest:
    """Return ElevenLabs' request in our shape, not streamed, and note what of it does nothing."""
    check_their_model(body.model_id, services)
    speed = body.voice_settings.speed if body.voice_settings else None
    sound, rate = output_format(form)
    given = {"seed": body.seed_, "language": body.language_code, "speed": speed}
    asked = [name for name in IDLE_QUERY if name in request.query_params]
    request.state.ignored = sorted(body.ignored() + asked)
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
    body_format = TimedJson(part, streamed=wanted.streamed) if timed else None
    return await answer_speech(request, wanted, body_format)


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
