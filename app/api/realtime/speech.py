"""One speech of a live session: text is appended while sound is sent, if the client reads it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any
from uuid import uuid4

from starlette.websockets import WebSocket, WebSocketDisconnect

from app.api.history.report import AskedSpeech, Failure
from app.api.middleware.pace import pace
from app.api.middleware.readers import Patience
from app.api.schemas import message
from app.api.services import Services
from app.audio.delivery import FileOptions
from app.audio.rendering import Renderer
from app.engine.core import AudioChunk, Plan, SpeechResult
from app.engine.errors import GenerationFailed, SpeechError
from app.engine.growing import GrowingSpeech
from app.engine.results import WordTimes

log = logging.getLogger(__name__)


class ClientGone(Exception):
    """The client has disconnected or does not read."""


class LiveSocket:
    """Sends one message at a time; ``write`` returns once the client may be sent more."""

    def __init__(self, write: Callable[[Any], Awaitable[None]], stall_timeout_s: float) -> None:
        self._write = write
        self._patience = Patience(stall_timeout_s)
        self._lock = asyncio.Lock()

    async def message(self, kind: str, speed: float = 1.0, **fields: Any) -> None:
        """Send a text frame with JSON; see `app.api.schemas.message`."""
        await self.text(message(kind, speed, **fields).decode())

    async def text(self, text: str) -> None:
        """Send a text frame."""
        await self.send({"type": "websocket.send", "text": text})

    async def audio(self, pcm: bytes) -> None:
        """Send a binary frame."""
        await self.send({"type": "websocket.send", "bytes": pcm})

    async def close(self, code: int, reason: str) -> None:
        """Close the WebSocket, if it is open."""
        with suppress(ClientGone):
            await self.send({"type": "websocket.close", "code": code, "reason": reason})

    async def send(self, sent: Any) -> None:
        """Send a message; raises ClientGone if the client has disconnected or does not read."""
        try:
            async with self._lock:
                await self._patience.send(self._write(sent), _size(sent))
        except TimeoutError:
            raise ClientGone("it does not read") from None
        except (WebSocketDisconnect, RuntimeError, OSError) as error:  # it has disconnected
            raise ClientGone("it has disconnected") from error


def _size(sent: Any) -> int:
    """Return about how many bytes a message has: it is bytes, or an event of ASGI."""
    return len(sent if isinstance(sent, bytes) else sent.get("bytes") or sent.get("text") or "")


async def received(websocket: WebSocket) -> str | bytes | None:
    """Return the next message of a WebSocket, paced; None once the client has disconnected."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        return None
    text: str | None = message.get("text")
    content: str | bytes = message.get("bytes") or b"" if text is None else text
    await pace(len(content))
    return content


class SpeechMessages:
    """How a protocol sends one speech to its client; every method may raise ClientGone."""

    def __init__(self) -> None:
        self.id = uuid4().hex  # of the response

    async def accepted(self) -> None:
        """Announce the speech, before any text is spoken."""

    async def started(self, plan: Plan) -> None:
        """Announce the sound."""

    async def sound(self, sound: bytes, words: Sequence[WordTimes]) -> None:
        """Send the next bytes, and words that are new or changed; either may be empty."""
        raise NotImplementedError

    async def spoken(self, result: SpeechResult) -> None:
        """Report the utterances that have just ended."""

    async def ended(
        self, speech: "LiveSpeech", error: SpeechError | None, result: SpeechResult | None
    ) -> None:
        """Announce the end: with a result, an error, or neither if it was cancelled."""
        raise NotImplementedError


class LiveSpeech:
    """Speaks a text while it is written, and announces its end exactly once; to be closed."""

    def __init__(
        self,
        services: Services,
        asked: AskedSpeech,
        output: FileOptions,
        messages: SpeechMessages,
    ) -> None:
        self._asked = asked
        self.job = asked.job
        self._output = output
        self._messages = messages
        self._services = services
        self._rate_hz = services.engine.info.sample_rate_hz
        settings = services.settings
        self.growing = GrowingSpeech(
            services.engine,
            asked.job,
            max_text_chars=settings.max_text_chars,
            busy_timeout_s=settings.request_timeout_s,
        )
        self._renderer: Renderer | None = None  # until the voice is known
        self.audio_bytes = 0  # of sound, sent
        self._text_at_s: float | None = None
        self.first_audio_s: float | None = None  # from the first text to the first sound
        self.ending = False  # whether the end was announced or is about to be
        # When something speakable was last appended or sound was last sent.
        self.moved_s: float | None = None
        self._begun_s = monotonic()
        self.speaking = asyncio.create_task(self._speak())

    @property
    def id(self) -> str:
        """The response id."""
        return self.job.id

    @property
    def audio_s(self) -> float:
        """Seconds of sound sent."""
        return self._renderer.audio_s if self._renderer else 0.0

    @property
    def active_s(self) -> float:
        """When something last happened that keeps it open; now while there is text to speak."""
        return (self.moved_s or self._begun_s) if self.growing.waits_for_text else monotonic()

    async def append(self, text: str) -> None:
        """Append text."""
        await self.growing.append(text)
        self._text_at_s = self._text_at_s or monotonic()
        if speakable(text):
            self.moved_s = monotonic()

    async def cancel(self) -> None:
        """Stop and announce the end, unless that is being done already."""
        await self._stop()
        await self._end(None, None)

    async def close(self) -> None:
        """Stop, for a client that has disconnected; store the result."""
        await self._stop()
        if not self.ending:
            self.ending = True
            self._services.admission.cut(self.job.client)
            self._keep(self._failure(None))

    async def _stop(self) -> None:
        self.speaking.cancel()
        await asyncio.gather(self.speaking, return_exceptions=True)
        await self.growing.aclose()

    async def _speak(self) -> None:
        """Send the sound, then announce the end."""
        error: SpeechError | None = None
        try:
            async for chunk in self.growing:
                await self._send(chunk)
            if self._renderer is not None:
                await self._send_sound(await self._renderer.close())
        except SpeechError as raised:
            error = raised
        except ClientGone:
            raise
        except Exception:
            log.exception("response %s failed", self.id)
            error = GenerationFailed("the speech could not be generated; the log has the details")
        await self._end(error, self.growing.result if error is None else None)

    async def _send(self, chunk: AudioChunk) -> None:
        """Send a chunk, and the report of utterances that end with it."""
        if self._renderer is None:
            plan = self.growing.plan
            assert plan is not None  # known with the first audio
            likely_lufs = self._services.engine.voices.likely_lufs(plan.voice)
            pool = self._services.render_pool, self.job.client
            self._renderer = Renderer(pool, self._output, self._rate_hz, likely_lufs)
            await self._messages.started(plan)
        words = chunk.words
        async for sound in self._renderer.push(chunk.samples):
            await self._send_sound(sound, words)
            words = ()
        if chunk.result is not None:
            await self._messages.spoken(chunk.result)

    async def _send_sound(self, sound: bytes, words: Sequence[WordTimes] = ()) -> None:
        """Send rendered bytes and words, if any."""
        if not sound and not words:
            return
        await self._messages.sound(sound, words)
        if not sound:
            return
        self.moved_s = monotonic()
        if self.first_audio_s is None and self._text_at_s is not None:
            self.first_audio_s = monotonic() - self._text_at_s
        self.audio_bytes += len(sound)

    async def _end(self, error: SpeechError | None, result: SpeechResult | None) -> None:
        self.ending = True
        self._keep(result or self._failure(error))
        await self._messages.ended(self, error, result)

    def _keep(self, outcome: SpeechResult | Failure) -> None:
        job = replace(self.job, text=self.growing.text)
        self._services.recent.keep(self._asked._replace(job=job), outcome)

    def _failure(self, error: SpeechError | None) -> Failure:
        so_far = self.growing.result
        return Failure.of(
            self.job,
            self.growing.plan,
            error,
            so_far.frames if so_far else 0,
            self.audio_s,
            so_far.utterances if so_far else (),
        )


def speakable(text: str) -> bool:
    """Return whether a text has a letter or digit, so that something may be spoken."""
    return any(character.isalnum() for character in text)
