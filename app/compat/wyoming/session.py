"""A connection of the Wyoming protocol: all voices, whole texts and streamed ones."""

import asyncio
import json
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.api.errors import invalid
from app.api.history.writer import warnings_for
from app.api.realtime.session import LiveSession
from app.api.realtime.speech import ClientGone, LiveSocket, LiveSpeech, SpeechMessages
from app.api.schemas import SpeechOptions
from app.api.services import Services
from app.compat.wyoming.events import Event, read_event
from app.engine.core import Plan, SampleRate, SpeechResult
from app.engine.errors import InvalidRequest, SpeechError
from app.engine.results import WordTimes
from app.version import VERSION

log = logging.getLogger(__name__)

_SILENCE_EVERY_S: Final = 1.0
_SILENCE_S: Final = 0.2

_OPEN: Final = "text"
_BEGINNINGS: Final = frozenset({"synthesize", "synthesize-start"})
_SENTENCE_END: Final = re.compile(r"[^\W\d]{2}[.!?…]+[\"'\u201d\u2019)]*$")
_TAIL_CHARS: Final = 16
_US: Final = {"name": "valle-serve", "url": ""}


class _NamedVoice(BaseModel):
    name: str | None = Field(None, max_length=200)
    language: str | None = Field(None, max_length=35)


class _Wanted(BaseModel):
    """What `synthesize`, `synthesize-start` and `synthesize-chunk` say; the rest is ignored."""

    model_config = ConfigDict(extra="ignore")

    text: str = ""
    voice: _NamedVoice | None = None
    text_format: str | None = Field(None, pattern="^(text|ssml)$")
    sample_rate: SampleRate | None = None


class WyomingSession(LiveSession[Event | InvalidRequest]):
    """One connection: describes the voices, and speaks one text after the other."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        services: Services,
        client: str,
    ) -> None:
        async def write(message: bytes) -> None:
            writer.write(message)
            await writer.drain()

        socket = LiveSocket(write, services.settings.stall_timeout_s)
        super().__init__(socket, services, client, "")
        self._reader = reader
        self._streams = False  # whether the client sends a text in pieces
        self._tail = ""  # of that text so far

    async def receive(self) -> Event | InvalidRequest | None:
        """Return the next event, or why it is none; None once the client has disconnected."""
        try:
            return await read_event(self._reader, self._services.settings.max_body_bytes)
        except InvalidRequest as error:
            return error
        except (EOFError, OSError):
            return None

    async def timed_out(self) -> None:
        """Tell that the session was idle."""
        limit_s = self._services.settings.idle_timeout_s
        await self.error(InvalidRequest(f"no text came for {limit_s:g} s"))

    async def handle(self, message: Event | InvalidRequest) -> None:
        """Act on an event."""
        if isinstance(message, InvalidRequest):  # where the next event begins is not known
            await self.error(message)
            self.over = True
            return
        try:
            await self._act(message)
        except SpeechError as error:
            await self.error(error)
            if _OPEN in self.speeches:
                await self.cancel(_OPEN)
            elif message.type in _BEGINNINGS:
                await self.send("audio-stop", {"timestamp": 0})

    async def error(self, error: SpeechError) -> None:
        """Send an error."""
        await self.send("error", {"text": error.message, "code": error.code})

    async def send(self, kind: str, data: Mapping[str, Any], payload: bytes = b"") -> None:
        """Send an event."""
        content = json.dumps(data).encode()
        head = {"type": kind, "version": VERSION, "data_length": len(content)}
        line = json.dumps(head | {"payload_length": len(payload)}).encode()
        await self._socket.send(b"".join([line, b"\n", content, payload]))

    async def _act(self, event: Event) -> None:
        """Act on an event; others than these are ignored."""
        speech = self.speeches.get(_OPEN)
        listening = speech is not None and not speech.growing.ended
        streams = self._streams
        match event.type:
            case "describe":
                await self.send("info", await self._info())
            case "ping":
                await self.send("pong", {"text": event.data.get("text")})
            case "synthesize-start":
                self._streams = True
                self._tail = ""
                if listening:
                    await self.cancel(_OPEN)
                await self._begin(_wanted(event))
            case "synthesize-chunk" if speech is not None and listening:
                await speech.append(self._spaced(_wanted(event).text))
            case "synthesize-stop":
                self._streams = False
                if speech is None or not listening:
                    await self.send("synthesize-stopped", {})
                else:
                    speech.growing.end()
            case "synthesize" if not streams and not listening:
                # Within a streamed text it repeats that for servers that do not stream.
                wanted = _wanted(event)
                speech = await self._begin(wanted)
                await speech.append(wanted.text)
                speech.growing.end()

    def _spaced(self, text: str) -> str:
        """Return a piece of a text, after a space where a sentence ended without one."""
        apart = _SENTENCE_END.search(self._tail) and text[:1].isupper()
        self._tail = (self._tail + text)[-_TAIL_CHARS:]
        return f" {text}" if apart else text

    async def _begin(self, wanted: _Wanted) -> LiveSpeech:
        """Begin a text, after the one that is being spoken."""
        if _OPEN in self.speeches:
            await self.speeches[_OPEN].speaking
            await self.settle()
        voice = wanted.voice or _NamedVoice()
        options = SpeechOptions(
            voice=voice.name, language=voice.language, sample_rate=wanted.sample_rate
        )
        rate_hz = wanted.sample_rate or self._services.engine.info.sample_rate_hz
        sound = _Sound(self, rate_hz, streamed=self._streams)
        return await self.begin(_OPEN, options, "pcm", sound)

    async def _info(self) -> dict[str, Any]:
        """Return what can be spoken, as the protocol describes it."""
        engine = self._services.engine
        named = await asyncio.to_thread(engine.voices.named, "")
        common = {"attribution": _US, "installed": True}
        voices = [
            common
            | {
                "name": name,
                "description": voice.title or name,
                "version": None,
                "languages": [voice.language],
            }
            for name, voice in named.items()
            if name == voice.name
        ]
        program = common | {
            "name": "valle-serve",
            "description": engine.info.name,
            "version": VERSION,
            "voices": voices,
            "supports_synthesize_streaming": True,
        }
        return {"tts": [program]}


class _Sound(SpeechMessages):
    """The events of one text's sound. Between its start and its end a device is never left waiting.

    Home Assistant's Voice PE stops for good if a stream is silent for 5 s
    (esphome/home-assistant-voice-pe#612).
    """

    def __init__(self, session: WyomingSession, rate_hz: int, *, streamed: bool) -> None:
        super().__init__()
        self._session = session
        self._streamed = streamed
        self._rate_hz = rate_hz
        self._shape = {"rate": rate_hz, "width": 2, "channels": 1}
        self._samples = 0
        self._waiting: asyncio.Task[None] | None = None
        self._sent = False

    async def started(self, plan: Plan) -> None:  # noqa: ARG002
        """Begin the sound."""
        await self._session.send("audio-start", self._shape)
        self._waiting = asyncio.create_task(self._fill_pauses())

    async def sound(self, sound: bytes, words: Sequence[WordTimes]) -> None:  # noqa: ARG002
        """Send the next samples."""
        at_ms = 1000 * self._samples // self._rate_hz
        self._sent = True
        self._samples += len(sound) // 2
        await self._session.send("audio-chunk", self._shape | {"timestamp": at_ms}, sound)

    async def ended(
        self,
        speech: LiveSpeech,
        error: SpeechError | None,
        result: SpeechResult | None,
    ) -> None:
        """End the sound, also of a text that failed: a client waits for its end."""
        if self._waiting is not None:
            self._waiting.cancel()
        if error is not None:
            await self._session.error(error)
        at_ms = 1000 * self._samples // self._rate_hz
        warnings = warnings_for(speech.growing.text, result) if result else []
        noted = {"warnings": warnings} if warnings else {}
        await self._session.send("audio-stop", {"timestamp": at_ms} | noted)
        if self._streamed and speech.growing.ended:  # else it is sent when the text ends
            await self._session.send("synthesize-stopped", {})

    async def _fill_pauses(self) -> None:
        """Send a little silence each second without sound while text is awaited."""
        silence = bytes(2 * round(_SILENCE_S * self._rate_hz))
        with suppress(ClientGone):
            while (speech := self._session.speeches.get(_OPEN)) is not None:
                self._sent = False
                await asyncio.sleep(_SILENCE_EVERY_S)
                if not self._sent and speech.growing.waits_for_text:
                    await self.sound(silence, ())


def _wanted(event: Event) -> _Wanted:
    try:
        return _Wanted.model_validate(event.data)
    except ValidationError as error:
        raise invalid(error) from error
