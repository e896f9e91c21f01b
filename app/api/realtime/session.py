"""A live session: one connection and the speeches on it, whatever its messages look like."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from time import monotonic
from typing import Any, Generic, TypeVar

from starlette.websockets import WebSocket

from app.api.errors import speech_error_response
from app.api.history.report import AskedSpeech
from app.api.middleware.access.clients import client_of
from app.api.realtime.lookahead import with_lookahead
from app.api.realtime.speech import ClientGone, LiveSocket, LiveSpeech, SpeechMessages, received
from app.api.requests import output_of
from app.api.schemas import SpeechOptions
from app.api.services import Services, services_of
from app.audio.formats import AudioFormat
from app.engine.core import SpeechPart
from app.engine.errors import SpeechError

M = TypeVar("M")


class LiveSession(ABC, Generic[M]):
    """Reads messages while speeches are sent, so that these can be cancelled.

    One clock for every protocol: a session ends `idle_timeout_s` after something speakable was last
    appended or sound was last sent, and a speech in it likewise; while there is text to speak both
    wait. A speech has that time from its beginning, which is not counted towards the session's.
    """

    def __init__(self, socket: LiveSocket, services: Services, client: str, owner: str) -> None:
        self._socket = socket
        self._services = services
        self._client = client
        self._owner = owner
        self._idle_timeout_s = services.settings.idle_timeout_s
        self.speeches: dict[str, LiveSpeech] = {}  # the open ones, as the protocol names them
        self.over = False  # whether the session is to end
        self._active_s = monotonic()

    @abstractmethod
    async def receive(self) -> M | None:
        """Return the next message; None once the client has disconnected."""

    @abstractmethod
    async def handle(self, message: M) -> None:
        """Act on a message or refuse it."""

    @abstractmethod
    async def timed_out(self) -> None:
        """Tell the client that the session was idle."""

    async def opened(self) -> None:
        """Greet the client."""

    async def run(self) -> None:
        """Serve the client until it disconnects, idles or stalls, or the session is over."""
        receiving = asyncio.create_task(self.receive())
        try:
            await self.opened()
            while not self.over and await self._turn(receiving):
                if receiving.done():
                    receiving = asyncio.create_task(self.receive())
        except ClientGone:
            pass  # a WebSocket's close frame would wait behind unread data
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            for speech in self.speeches.values():
                await speech.close()
            self.speeches.clear()

    async def begin(
        self, name: str, options: SpeechOptions, form: AudioFormat, messages: SpeechMessages
    ) -> LiveSpeech:
        """Begin a speech, whose work is counted until it has ended, under a name of no open one."""
        services = self._services
        services.engine.lifecycle.check_ready()
        await check_voice(services, options.voice, self._owner)
        job = options.job_of("", messages.id, self._owner, self._client)
        if (place := options.continue_from) is not None:
            kept = await services.recent.take(place, self._owner)
            job = replace(job, part=SpeechPart(kept=kept))
        engine = services.engine
        usual = services.settings.live_lookahead_words
        job = replace(job, params=with_lookahead(job, engine.presets, engine.info, usual))
        await services.admission.count(self._client)
        with ExitStack() as work:
            work.enter_context(await services.admission.work(self._client))
            await messages.accepted()
            speech = LiveSpeech(services, AskedSpeech(job, options), output_of(job, form), messages)
            counted = work.pop_all()
        speech.speaking.add_done_callback(lambda _: counted.close())
        self.speeches[name] = speech
        return speech

    async def cancel(self, name: str) -> None:
        """Stop an open speech and announce its end."""
        speech = self.speeches[name]
        if not speech.ending:
            await speech.cancel()
            self._forget(name)
        await self.settle()

    async def settle(self) -> None:
        """Wait for speeches whose end is being announced, and forget them."""
        for name, speech in [*self.speeches.items()]:
            if speech.ending or speech.speaking.done():
                await speech.speaking
                self._forget(name)

    def _forget(self, name: str) -> None:
        speech = self.speeches.pop(name)
        self._active_s = max(self._active_s, speech.moved_s or 0.0)

    async def _turn(self, receiving: "asyncio.Task[M | None]") -> bool:
        """Wait for a message, the end of a speech or a deadline, and act on it."""
        waiting = {receiving, *(one.speaking for one in self.speeches.values())}
        earliest_s = min([self._last_s, *(one.active_s for one in self.speeches.values())])
        left_s = earliest_s + self._idle_timeout_s - monotonic()
        await asyncio.wait(waiting, timeout=max(0.0, left_s), return_when=asyncio.FIRST_COMPLETED)
        if any(one.speaking.done() for one in self.speeches.values()):
            await self.settle()
        if self.over:
            return False
        late_s = monotonic() - self._idle_timeout_s
        if self._last_s <= late_s:
            await self.timed_out()
            return False
        for name in [name for name, one in self.speeches.items() if one.active_s <= late_s]:
            await self.cancel(name)
        if receiving.done():
            message = receiving.result()
            if message is None:
                return False
            await self.handle(message)
        return True

    @property
    def _last_s(self) -> float:
        """When something last happened that keeps the session open; now if text is to be spoken."""
        return max([self._active_s, *(one.active_s for one in self.speeches.values())])


class WebSocketSession(LiveSession[str | bytes]):
    """A session on an accepted WebSocket."""

    def __init__(self, websocket: WebSocket, services: Services) -> None:
        socket = LiveSocket(websocket.send, services.settings.stall_timeout_s)
        super().__init__(socket, services, client_of(websocket), websocket.state.owner)
        self._websocket = websocket

    async def receive(self) -> str | bytes | None:
        """Return the next message; None once the client has disconnected."""
        return await received(self._websocket)


async def check_voice(services: Services, name: str | None, owner: str) -> None:
    """Raise UnknownVoice unless an owner has a voice of a name; None is the default voice."""
    if name is not None:
        await asyncio.to_thread(services.engine.voices.find, name, owner)


async def serve_session(
    websocket: WebSocket,
    session: Callable[[WebSocket, Services], LiveSession[Any]],
    subprotocol: str | None = None,
    voice: str | None = None,
) -> None:
    """Accept a WebSocket and serve it, or refuse it if there is no place or not the voice."""
    services = services_of(websocket)
    try:
        place = services.live_place(client_of(websocket))
        await check_voice(services, voice, websocket.state.owner)
    except SpeechError as error:
        await websocket.send_denial_response(speech_error_response(error))
        return
    with place:
        await websocket.accept(subprotocol)
        await session(websocket, services).run()
