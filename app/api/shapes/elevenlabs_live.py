"""The WebSocket `/v1/text-to-speech/{voice_id}/stream-input`, in ElevenLabs' shape."""

import asyncio
import json
from base64 import b64encode
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, WebSocket
from pydantic import BaseModel, ConfigDict, Field
from starlette.websockets import WebSocketDisconnect

from app.api.gate.admission import Admission, client_of
from app.api.schemas import SpeechOptions
from app.api.shapes.characters import timed_characters
from app.api.shapes.elevenlabs import VoiceSettings, check_their_model, output_format
from app.api.shapes.words import FinalWords
from app.audio.rendering import OutputOptions, StreamRenderer, split_portions
from app.engine.continued import GrowingSpeech
from app.engine.engine import SpeechEngine
from app.engine.errors import (
    EngineBusy,
    InvalidRequest,
    SpeechError,
    UnknownModel,
    UnknownVoice,
)
from app.engine.job import AudioChunk
from app.engine.serving.shares import Places
from app.settings import Settings

_REFUSED, _FAILED = 1008, 1011  # close codes of RFC 6455: policy, internal error

elevenlabs_live_router = APIRouter()


class TextMessage(BaseModel):
    """A message of the client: the next text, the end if that is empty, or settings."""

    model_config = ConfigDict(extra="ignore")

    text: str = Field(max_length=100_000)
    flush: bool = False
    voice_settings: VoiceSettings | None = None


@elevenlabs_live_router.websocket("/v1/text-to-speech/{voice_id}/stream-input")
async def elevenlabs_live(websocket: WebSocket, voice_id: str) -> None:
    """Speak a text while it is being written, as ElevenLabs would."""
    state = websocket.app.state
    engine: SpeechEngine = state.engine
    sessions: Places = state.live_sessions
    admission: Admission = state.admission
    settings: Settings = state.settings
    client = client_of(websocket)
    await websocket.accept()
    try:
        admission.check_open()
        engine.check_ready()
        _check_place(sessions, client)
        await admission.count(client)
        with ExitStack() as work:
            work.enter_context(sessions.held(client))
            work.enter_context(await admission.work(client))
            await _Session(websocket, engine, settings, voice_id, client).run()
        await websocket.close()
    except (WebSocketDisconnect, RuntimeError):
        return  # the client has left
    except (SpeechError, ValueError) as error:
        message = error.message if isinstance(error, SpeechError) else "the message is not valid"
        asked = isinstance(error, InvalidRequest | UnknownVoice | UnknownModel | ValueError)
        code = _REFUSED if asked else _FAILED
        with suppress(WebSocketDisconnect, RuntimeError):
            await websocket.send_json({"message": message, "error": "invalid", "code": code})
            await websocket.close(code, message[:100])


def _check_place(sessions: Places, client: str) -> None:
    """Do nothing if a client may open one more session.

    Raises:
        EngineBusy: It may not.
    """
    if not sessions.free(client):
        raise EngineBusy("too many sessions are open, or too many of yours", retry_after_s=5)


class _Session:
    """One text of one client, and its speech."""

    def __init__(
        self,
        websocket: WebSocket,
        engine: SpeechEngine,
        settings: Settings,
        voice: str,
        client: str,
    ) -> None:
        query = websocket.query_params
        form = output_format(query.get("output_format", "mp3_44100_128"))
        check_their_model(query.get("model_id"), engine, settings)
        self._websocket, self._engine, self._settings = websocket, engine, settings
        self._voice, self._client, self._form = voice, client, form
        self._language = query.get("language_code")

    async def run(self) -> None:
        """Read the text and send its speech until both have ended.

        Raises:
            SpeechError: The speech is refused or fails.
            WebSocketDisconnect: The client has left.
        """
        opening = await self._next()
        speed = opening.voice_settings.speed if opening.voice_settings else None
        given: dict[str, Any] = {"speed": speed, "language": self._language}
        options = SpeechOptions(
            voice=self._voice,
            timestamps="word" if self._engine.info.aligns else "none",
            **{name: value for name, value in given.items() if value is not None},
        )
        owner = getattr(self._websocket.state, "owner", "")
        job = options.job_of("", uuid4().hex, owner, self._client)
        speech = GrowingSpeech(
            self._engine,
            job,
            max_text_chars=self._settings.max_text_chars,
            busy_timeout_s=self._settings.request_timeout_s,
        )
        output = OutputOptions(self._form, options.speed)
        sending = asyncio.create_task(self._send(speech, output))
        reading = asyncio.create_task(self._read(speech, opening))
        try:
            await asyncio.wait({sending, reading}, return_when=asyncio.FIRST_EXCEPTION)
            for task in (reading, sending):
                if task.done():
                    await task
        finally:
            for task in (reading, sending):
                task.cancel()
            await asyncio.gather(reading, sending, return_exceptions=True)
            await speech.aclose()

    async def _next(self) -> TextMessage:
        """Return the next message.

        Raises:
            InvalidRequest: The client sent nothing for too long.
        """
        limit_s = self._settings.idle_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                raw = await self._websocket.receive_text()
        except TimeoutError:
            raise InvalidRequest(f"no text came for {limit_s:g} s") from None
        return TextMessage.model_validate_json(raw)

    async def _read(self, speech: GrowingSpeech, message: TextMessage) -> None:
        """Append the texts of messages until an empty one."""
        while message.text:
            if speech.text or message.text.strip():
                await speech.append(message.text)
            if message.flush:
                speech.flush()
            message = await self._next()
        speech.end()

    async def _send(self, speech: GrowingSpeech, output: OutputOptions) -> None:
        """Send the audio with its alignment, and the message that it is final."""
        pool, rate_hz = self._websocket.app.state.render_pool, self._engine.info.sample_rate_hz
        renderer, final = StreamRenderer(output, rate_hz), FinalWords()

        async def send(chunk: AudioChunk | None) -> None:
            steps = (
                [renderer.close]
                if chunk is None
                else [partial(renderer.push, one) for one in split_portions(chunk.samples, rate_hz)]
            )
            sound = b"".join([await pool.run(self._client, step) for step in steps])
            characters = timed_characters(final.add(chunk.words if chunk else ()), output.speed)
            if not sound and not characters:
                return
            alignment = characters and {
                "chars": [one.character for one in characters],
                "charStartTimesMs": [round(1000 * one.start_s) for one in characters],
                "charDurationsMs": [round(1000 * (one.end_s - one.start_s)) for one in characters],
            }
            told = {
                "audio": b64encode(sound).decode(),
                "isFinal": None,
                "alignment": alignment or None,
                "normalizedAlignment": alignment or None,
            }
            async with asyncio.timeout(self._settings.stall_timeout_s):
                await self._websocket.send_text(json.dumps(told))

        async for chunk in speech:
            await send(chunk)
        await send(None)
        await self._websocket.send_text(json.dumps({"audio": None, "isFinal": True}))
