"""nari-labs' WebSocket protocol `nari.speech.v1`: one response, whose text comes word by word.

Source: the client of https://github.com/nari-labs/benchmarks, which refuses any other message.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, WebSocket
from pydantic import ConfigDict, Field, TypeAdapter

from app.api.errors import speech_error_detail
from app.api.realtime.route import serve_protocol
from app.api.realtime.speech import LiveSocket, LiveSpeech
from app.api.realtime.valle import (
    ENCODINGS,
    InputText,
    ResponseCancel,
    ResponseMessages,
    ValleSession,
)
from app.api.schemas import SpeechOptions
from app.api.services import Services
from app.audio.formats import AudioFormat
from app.engine.core import Plan, SpeechResult
from app.engine.errors import SpeechError
from app.engine.results import WordTimes

NARI_PROTOCOL: Final = "nari.speech.v1"
"""The WebSocket subprotocol."""

_CLOSED: Final = 1000

nari_live_router = APIRouter()


class RequestStart(SpeechOptions):
    """Start the response; its text follows."""

    model_config = ConfigDict(title="RequestStart")

    type: Literal["request.start"]
    response_format: Literal["pcm"] = "pcm"


_MESSAGE: Final[TypeAdapter[Any]] = TypeAdapter(
    Annotated[RequestStart | InputText | ResponseCancel, Field(discriminator="type")]
)


@nari_live_router.websocket("/v1/audio/speech/ws")
async def nari_live(websocket: WebSocket) -> None:
    """Speak a text while it is being written, as nari-labs' server would."""
    await serve_protocol(websocket, NariSession, NARI_PROTOCOL)


class NariSession(ValleSession):
    """A WebSocket for one response, after which it is closed."""

    messages = _MESSAGE
    creates = RequestStart
    created_by = "request.start"

    async def opened(self) -> None:
        """Send `session.created`."""
        rate_hz = self._services.engine.info.sample_rate_hz
        await self._socket.message("session.created", protocol=NARI_PROTOCOL, audio=_audio(rate_hz))

    async def acknowledge(self, response_id: str, message: InputText) -> None:  # noqa: ARG002
        """Tell that a message was taken, and which."""
        await self._socket.message("input_text.ack", event=message.type, sequence=message.sequence)

    def response(self, wanted: SpeechOptions) -> tuple[AudioFormat, ResponseMessages]:
        """Return the format of the response, and what sends its messages."""
        return "pcm", NariMessages(self._socket, wanted, self._services, self.finish)

    async def finish(self) -> None:
        """Close the WebSocket."""
        await self._socket.close(_CLOSED, "")
        self.over = True


class NariMessages(ResponseMessages):
    """The messages of the response."""

    def __init__(
        self,
        socket: LiveSocket,
        wanted: SpeechOptions,
        services: Services,
        finish: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(socket, wanted, services)
        self._finish = finish
        self._chunks = 0  # binary frames

    async def accepted(self) -> None:
        """Send `request.configured`."""
        await self._socket.message("request.configured", ignored=self.ignored)

    async def started(self, plan: Plan) -> None:  # noqa: ARG002
        """Send `response.started`."""
        audio = _audio(self._wanted.sample_rate or self._rate_hz)
        await self._socket.message("response.started", request_id=self.id, audio=audio)

    async def sound(self, sound: bytes, words: Sequence[WordTimes]) -> None:  # noqa: ARG002
        """Send a binary frame; the protocol has no times of words."""
        if sound:
            self._chunks += 1
            await self._socket.audio(sound)

    async def spoken(self, result: SpeechResult) -> None:
        """Send nothing: the protocol has no traces."""

    async def ended(
        self,
        speech: LiveSpeech,  # noqa: ARG002
        error: SpeechError | None,
        result: SpeechResult | None,
    ) -> None:
        """Send the error, if there is one, and `response.done`; then close."""
        if error is not None:
            await self._socket.message(
                "error", request_id=self.id, error=speech_error_detail(error)
            )
        reason = result.finish_reason if result else "error" if error else "cancelled"
        await self._socket.message(
            "response.done", request_id=self.id, stop_reason=reason, audio_chunks=self._chunks
        )
        await self._finish()


def _audio(sample_rate_hz: int) -> dict[str, Any]:
    return {"encoding": ENCODINGS["pcm"], "sample_rate": sample_rate_hz, "channels": 1}
