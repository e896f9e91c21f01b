"""The Wyoming protocol of Home Assistant over TCP: all voices, whole texts and streamed ones.

Source: https://github.com/OHF-Voice/wyoming. The protocol has no keys, so it is for a network that
is trusted.
"""

import asyncio
import logging
from contextlib import ExitStack, suppress
from importlib.metadata import version
from uuid import uuid4

from fastapi import FastAPI
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.server import AsyncEventHandler, AsyncTcpServer
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from app.api.gate.admission import Admission
from app.api.schemas import SpeechOptions
from app.audio.containers import pcm
from app.engine.continued import GrowingSpeech
from app.engine.engine import SpeechEngine
from app.engine.errors import EngineBusy, SpeechError
from app.engine.serving.shares import Places
from app.settings import Settings

log = logging.getLogger(__name__)

_OURS = Attribution("valle-serve", "")


class WyomingServer:
    """Listens on a port for the time of a context."""

    def __init__(self, app: FastAPI) -> None:
        """Listen nowhere yet.

        Args:
            app: The application, whose engine, settings and limits are used.
        """
        settings: Settings = app.state.settings
        self._app = app
        self._server = AsyncTcpServer(settings.host, settings.wyoming_port)

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            OSError: The port is in use.
        """
        await self._server.start(lambda reader, writer: _Handler(reader, writer, self._app))

    async def stop(self) -> None:
        """Listen no more, and drop all connections."""
        await self._server.stop()


class _Handler(AsyncEventHandler):
    """One connection: describes the voices, and speaks one text after the other."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, app: FastAPI
    ) -> None:
        super().__init__(reader, writer)
        state = app.state
        self._engine: SpeechEngine = state.engine
        self._settings: Settings = state.settings
        self._admission: Admission = state.admission
        self._sessions: Places = state.live_sessions
        peer = writer.get_extra_info("peername")
        self._client = str(peer[0]) if peer else ""
        self._speech: GrowingSpeech | None = None
        self._sending: asyncio.Task[None] | None = None

    async def handle_event(self, event: Event) -> bool:
        """Act on an event; return whether to go on."""
        try:
            if Describe.is_type(event.type):
                await self.write_event((await self._info()).event())
            elif SynthesizeStart.is_type(event.type):
                await self._begin(SynthesizeStart.from_event(event).voice)
            elif SynthesizeChunk.is_type(event.type):
                if self._speech is not None:
                    await self._speech.append(SynthesizeChunk.from_event(event).text)
            elif SynthesizeStop.is_type(event.type):
                await self._end()
                await self.write_event(SynthesizeStopped().event())
            elif Synthesize.is_type(event.type) and self._speech is None:
                # Within a streamed text it repeats that for servers that do not stream.
                wanted = Synthesize.from_event(event)
                await self._begin(wanted.voice)
                if self._speech is not None:
                    await self._speech.append(wanted.text)
                await self._end()
        except (SpeechError, KeyError, TypeError, ValueError) as error:
            await self._cancel()
            told = error.message if isinstance(error, SpeechError) else "the event is not valid"
            await self.write_event(Error(told, code=getattr(error, "code", "invalid")).event())
        return True

    async def disconnect(self) -> None:
        """Stop speaking: the client has left."""
        await self._cancel()

    async def _info(self) -> Info:
        """Return what can be spoken, as the protocol describes it.

        Raises:
            EngineNotReady: No model is loaded.
        """
        engine = self._engine
        voices = await asyncio.to_thread(engine.voices.named, "")
        described = [
            TtsVoice(
                name=name,
                attribution=_OURS,
                installed=True,
                description=voice.title or name,
                version=None,
                languages=[voice.language],
            )
            for name, voice in voices.items()
            if name == voice.name
        ]
        program = TtsProgram(
            name="valle-serve",
            attribution=_OURS,
            installed=True,
            description=engine.info.name,
            version=version("valle-serve"),
            voices=described,
            supports_synthesize_streaming=True,
        )
        return Info(tts=[program])

    async def _begin(self, voice: SynthesizeVoice | None) -> None:
        """Begin a text that comes in pieces.

        Raises:
            EngineBusy: Too many sessions are open.
            SpeechError: It is refused.
        """
        await self._cancel()
        self._admission.check_open()
        self._engine.check_ready()
        if not self._sessions.free(self._client):
            raise EngineBusy("too many sessions are open, or too many of yours", retry_after_s=5)
        await self._admission.count(self._client)
        options = SpeechOptions(
            voice=voice.name if voice else None, language=voice.language if voice else None
        )
        self._speech = GrowingSpeech(
            self._engine,
            options.job_of("", uuid4().hex, "", self._client),
            max_text_chars=self._settings.max_text_chars,
            busy_timeout_s=self._settings.request_timeout_s,
        )
        self._sending = asyncio.create_task(self._send(self._speech))

    async def _end(self) -> None:
        """End the text, and wait until all of it is sent.

        Raises:
            SpeechError: The speech failed.
        """
        speech, sending = self._speech, self._sending
        if speech is None or sending is None:
            return
        speech.end()
        try:
            await sending
        finally:
            self._speech = self._sending = None

    async def _send(self, speech: GrowingSpeech) -> None:
        """Send the audio of a speech.

        Raises:
            SpeechError: It is refused or fails.
        """
        rate_hz, sent, begun = self._engine.info.sample_rate_hz, 0, False
        shape = {"rate": rate_hz, "width": 2, "channels": 1}
        with ExitStack() as work:
            work.enter_context(self._sessions.held(self._client))
            work.enter_context(await self._admission.work(self._client))
            async for chunk in speech:
                if not begun:
                    begun = True
                    await self.write_event(AudioStart(**shape).event())
                at_ms = 1000 * sent // rate_hz
                sent += len(chunk.samples)
                audio = pcm(chunk.samples)
                if audio:
                    part = AudioChunk(**shape, audio=audio, timestamp=at_ms)
                    await self.write_event(part.event())
            await self.write_event(AudioStop(timestamp=1000 * sent // rate_hz).event())

    async def _cancel(self) -> None:
        """Stop the speech that has begun, if there is one."""
        speech, sending = self._speech, self._sending
        self._speech = self._sending = None
        if sending is not None:
            sending.cancel()
            with suppress(asyncio.CancelledError, SpeechError, OSError):
                await sending
        if speech is not None:
            await speech.aclose()
