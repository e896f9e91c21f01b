"""The Wyoming protocol of Home Assistant over TCP: all voices, whole texts and streamed ones.

Source: https://github.com/OHF-Voice/wyoming. The protocol has no keys, so it is for a network that
is trusted. Events are read here, not by its package, whose sizes are what the peer says.
"""

import asyncio
import json
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.api.errors import invalid
from app.api.live.session import LiveSession
from app.api.live.speech import ClientGone, LiveSocket, LiveSpeech, SpeechMessages
from app.api.middleware.clients import network_of
from app.api.middleware.pace import pace
from app.api.middleware.readers import limit_send_buffer
from app.api.reports.writer import warnings_for
from app.api.requests import sized_json
from app.api.schemas import SpeechOptions
from app.api.services import Services
from app.audio.formats import SampleRate
from app.engine.errors import InvalidRequest, SpeechError
from app.engine.interface import Plan
from app.engine.job import SpeechResult, WordTimes
from app.version import VERSION

log = logging.getLogger(__name__)

_LINE_BYTES: Final = 16_384
_SILENCE_EVERY_S: Final = 1.0
_SILENCE_S: Final = 0.2
_LINGER_S: Final = 1.0
_OPEN: Final = "text"
_BEGINNINGS: Final = frozenset({"synthesize", "synthesize-start"})
_SENTENCE_END: Final = re.compile(r"[^\W\d]{2}[.!?…]+[\"'\u201d\u2019)]*$")
_TAIL_CHARS: Final = 16
_US: Final = {"name": "valle-serve", "url": ""}


class WyomingServer:
    """Listens on a port for the time of a context."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self) -> None:
        """Begin to listen."""
        settings = self._services.settings
        self._server = await asyncio.start_server(
            self._accept, settings.host, settings.wyoming_port, limit=_LINE_BYTES
        )

    async def stop(self) -> None:
        """Listen no more, and drop all connections."""
        assert self._server is not None
        self._server.close()
        open_ = dict(self._serving)
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)
        for writer in open_.values():  # a task that was cancelled before it began closes nothing
            writer.transport.abort()
        closing = (writer.wait_closed() for writer in open_.values())
        await asyncio.gather(*closing, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection in a task; asyncio's own would be unknown to `stop` until it runs."""
        limit_send_buffer(writer.transport)
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving[task] = writer
        task.add_done_callback(self._serving.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to its end, whatever comes."""
        peer = writer.get_extra_info("peername")
        client = network_of(str(peer[0])) if peer else ""
        services = self._services
        session = WyomingSession(reader, writer, services, client)
        try:
            with services.limits.connections.counted(client), services.live_place(client):
                await session.run()
        except SpeechError as error:
            with suppress(ClientGone):
                await session.error(error)
        except Exception:
            log.exception("a connection of the Wyoming protocol failed")
        finally:
            await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection, with what its client has not taken a second later."""
    writer.close()
    closed = asyncio.ensure_future(writer.wait_closed())
    closed.add_done_callback(lambda one: one.cancelled() or one.exception())  # a reset is no news
    try:
        await asyncio.wait({closed}, timeout=_LINGER_S)
    finally:
        writer.transport.abort()


class Event(NamedTuple):
    """An event of the client."""

    type: str
    data: dict[str, Any]


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
        told = {"warnings": warnings} if warnings else {}
        await self._session.send("audio-stop", {"timestamp": at_ms} | told)
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


async def read_event(reader: asyncio.StreamReader, max_bytes: int) -> Event:
    """Return the next event of a client, with so many bytes of data at most.

    Raises InvalidRequest if it is none, or too large, or carries sound.
    """
    try:
        line = await reader.readuntil()
    except asyncio.LimitOverrunError:
        raise InvalidRequest(f"the line is longer than {_LINE_BYTES} bytes") from None
    head = _object(line)
    kind = head.get("type")
    data = head.get("data")
    length = head.get("data_length")
    data = {} if data is None else data
    length = 0 if length is None else length
    if not isinstance(kind, str) or not isinstance(data, dict) or type(length) is not int:
        raise InvalidRequest("the event is not valid")
    if head.get("payload_length"):
        raise InvalidRequest("no event with a payload is taken", param="payload_length")
    if not 0 <= length <= max_bytes:
        raise InvalidRequest(f"the data may have {max_bytes} bytes", param="data_length")
    if not length:
        return Event(kind, data)
    more = await reader.readexactly(length)
    await pace(length)
    return Event(kind, data | _object(more))


def _object(content: bytes) -> dict[str, Any]:
    try:
        sent = sized_json(content)
    except ValueError:
        sent = None
    if not isinstance(sent, dict):
        raise InvalidRequest("the event is not a JSON object")
    return sent


def _wanted(event: Event) -> _Wanted:
    try:
        return _Wanted.model_validate(event.data)
    except ValidationError as error:
        raise invalid(error) from error
