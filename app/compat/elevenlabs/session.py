"""A WebSocket of ElevenLabs' protocol for one text, and the messages of a text."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from fastapi import WebSocket
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.api.errors import invalid
from app.api.history.writer import warnings_for
from app.api.realtime.session import WebSocketSession
from app.api.realtime.speech import LiveSpeech, SpeechMessages, speakable
from app.api.requests import check_json_size
from app.api.schemas import SpeechOptions
from app.api.services import Services
from app.compat.elevenlabs.speech import (
    DEFAULT_FORMAT,
    VoiceSettings,
    check_their_model,
    dictionaries_of,
    output_format,
)
from app.compat.timed_words import FinalWords, TimedCharacter, timed_characters
from app.engine.core import SpeechResult
from app.engine.errors import InvalidRequest, SpeechError, UnknownModel, UnknownVoice
from app.engine.results import WordTimes

# Codes of RFC 6455
_CLOSED = 1000  # normal
_REFUSED = 1008  # policy
_FAILED = 1011  # internal error
_REASON_CHARS: Final = 100

_NOTHING: Final = "nothing is spoken: the text has no word"
_SENTENCE_ENDS: Final = (".", "!", "?", "…")


class TextMessage(BaseModel):
    """A message of the client; fields that do nothing here are not listed."""

    model_config = ConfigDict(extra="ignore")

    text: str | None = Field(None, max_length=100_000)
    flush: bool | None = None
    voice_settings: VoiceSettings | None = None
    pronunciation_dictionary_locators: list[Any] | None = Field(None, max_length=8)
    context_id: str | None = Field(None, max_length=200)
    close_context: bool | None = None
    close_socket: bool | None = None


@dataclass
class _Context:
    """A context that was opened and not closed."""

    first: TextMessage  # which has the settings
    flushed: bool = False  # whether the client flushed all of its text


class ElevenLabsSession(WebSocketSession):
    """A WebSocket for one text, which an empty one ends."""

    def __init__(self, websocket: WebSocket, services: Services) -> None:
        super().__init__(websocket, services)
        self._query = websocket.query_params
        self._form, self._rate_hz = output_format(DEFAULT_FORMAT)
        self.contexts: dict[str, _Context] = {}

    async def opened(self) -> None:
        """Check the query."""
        services = self._services
        try:
            form = self._query.get("output_format", DEFAULT_FORMAT)
            self._form, self._rate_hz = output_format(form)
            check_their_model(self._query.get("model_id"), services)
        except SpeechError as error:
            await self.end(error)

    async def timed_out(self) -> None:
        """Tell that the session was idle, and close."""
        limit_s = self._services.settings.idle_timeout_s
        await self.end(InvalidRequest(f"no text came for {limit_s:g} s"))

    async def handle(self, message: str | bytes) -> None:
        """Act on a message; one that is refused ends the session."""
        try:
            parsed = parsed_message(message)
            if parsed.text is None:
                raise InvalidRequest("text: Field required", param="text")
            await self._append("", parsed)
            if not parsed.text and not self.speeches and self.contexts:
                await self.speech_ended("", None, [_NOTHING])
            elif not parsed.text:
                self._speech("").growing.end()
        except SpeechError as error:
            await self.end(error)

    async def end(self, error: SpeechError | None = None) -> None:
        """Close the WebSocket, after a message for an error."""
        if error is not None:
            await self.send(refusal_message(error))
        code = _CLOSED if error is None else _close_code(error)
        await self._socket.close(code, error.message[:_REASON_CHARS] if error else "")
        self.over = True

    async def send(self, message: dict[str, Any]) -> None:
        """Send a JSON object."""
        await self._socket.text(json.dumps(message))

    async def speech_ended(
        self, name: str, error: SpeechError | None, warnings: Sequence[str] = ()
    ) -> None:
        """Tell that the text was spoken, with what it warns of, and close."""
        del self.contexts[name]
        if error is None:
            await self.send({"audio": None, "isFinal": True} | warnings_field(warnings))
        await self.end(error)

    def _messages(self, name: str, speed: float) -> "TextMessages":
        return TextMessages(self, name, speed)

    def _speech(self, name: str) -> LiveSpeech:
        """Return the open speech of a context."""
        speech = self.speeches.get(name)
        if speech is None:
            raise InvalidRequest("there is no text to speak", param="text")
        return speech

    async def _append(self, name: str, message: TextMessage) -> None:
        """Append the text of a message to a context, which may be new, and flush it."""
        text = message.text or ""
        if text:
            self.contexts.setdefault(name, _Context(message))
        speech = self.speeches.get(name)
        if speech is None and speakable(text):
            speech = await self._begin(name)
        if speech is None:
            return
        if text:
            await speech.append(text)
            self.contexts[name].flushed = False
        sentence = self._query.get("auto_mode") == "true" and text.rstrip().endswith(_SENTENCE_ENDS)
        if message.flush or sentence:
            speech.growing.flush()
        if message.flush:
            self.contexts[name].flushed = True

    async def _begin(self, name: str) -> LiveSpeech:
        first = self.contexts[name].first
        settings = first.voice_settings
        given: dict[str, Any] = {
            "speed": settings.speed if settings else None,
            "language": self._query.get("language_code"),
            "sample_rate": self._rate_hz,
            "dictionaries": dictionaries_of(first.pronunciation_dictionary_locators or ()),
        }
        options = SpeechOptions(
            voice=self._websocket.path_params["voice_id"],
            timestamps="word" if self._services.engine.info.aligns else "none",
            **{name: value for name, value in given.items() if value is not None},
        )
        return await self.begin(name, options, self._form, self._messages(name, options.speed))


class TextMessages(SpeechMessages):
    """The messages of one text, each with the fields ``more``.

    Times are those since the beginning of the text if ``absolute``, else since the end of the
    characters of the message before. ElevenLabs' clients differ: LiveKit's takes times as they are,
    and asks for `sync_alignment`; Pipecat's adds them up.
    """

    def __init__(
        self,
        session: ElevenLabsSession,
        name: str,
        speed: float,
        more: Mapping[str, str] = MappingProxyType({}),
        *,
        absolute: bool = True,
    ) -> None:
        super().__init__()
        self._session = session
        self._name = name
        self._speed = speed
        self._more = more
        self._absolute = absolute
        self._final = FinalWords()
        self._sent_s = 0.0

    async def sound(self, sound: bytes, words: Sequence[WordTimes]) -> None:
        """Send the next bytes of the file, and the characters of words that are heard."""
        final = self._final.add(words)
        written = timed_characters(final, self._speed)
        if not sound and not written:
            return
        spoken = timed_characters(final, self._speed, normalised=True)
        message = {
            "audio": b64encode(sound).decode(),
            "isFinal": None,
            "alignment": self._alignment(written),
            "normalizedAlignment": self._alignment(spoken),
        }
        if written and not self._absolute:
            self._sent_s = written[-1].end_s
        await self._session.send(message | {**self._more})

    def _alignment(self, characters: Sequence[TimedCharacter]) -> dict[str, Any] | None:
        if not characters:
            return None
        starts_s = [one.start_s - self._sent_s for one in characters]
        return {
            "chars": [one.character for one in characters],
            "charStartTimesMs": [round(1000 * at_s) for at_s in starts_s],
            "charDurationsMs": [round(1000 * (one.end_s - one.start_s)) for one in characters],
        }

    async def ended(
        self,
        speech: LiveSpeech,
        error: SpeechError | None,
        result: SpeechResult | None,
    ) -> None:
        """Send the message that the text has ended."""
        warnings = warnings_for(speech.growing.text, result) if result else ()
        await self._session.speech_ended(self._name, error, warnings)


def warnings_field(warnings: Sequence[str]) -> dict[str, Any]:
    """Return the field with warnings, which ElevenLabs does not have, if there are any."""
    return {"warnings": [*warnings]} if warnings else {}


def parsed_message(raw: str | bytes) -> TextMessage:
    """Return a message of a client; raises InvalidRequest if it is none."""
    if isinstance(raw, bytes):
        raise InvalidRequest("send text, not bytes")
    check_json_size(raw)
    try:
        return TextMessage.model_validate_json(raw)
    except ValidationError as error:
        raise invalid(error) from error


def refusal_message(error: SpeechError) -> dict[str, Any]:
    """Return the message for an error."""
    return {"message": error.message, "error": error.code, "code": _close_code(error)}


def _close_code(error: SpeechError) -> int:
    """Return the close code of a WebSocket for an error."""
    asked = isinstance(error, InvalidRequest | UnknownVoice | UnknownModel)
    return _REFUSED if asked else _FAILED
