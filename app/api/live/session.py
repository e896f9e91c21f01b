"""A live session: one WebSocket, and the responses that are spoken over it one after the other."""

import asyncio
from contextlib import ExitStack
from time import monotonic
from uuid import uuid4

from pydantic import ValidationError
from starlette.websockets import WebSocket

from app.api.errors import (
    error_detail,
    problems_of,
    speech_error_detail,
    validation_error_detail,
)
from app.api.gate.admission import Admission
from app.api.gate.askers import asker
from app.api.gate.shape import check_shape
from app.api.live.messages import (
    CLIENT_MESSAGE,
    CLIENT_MESSAGE_TYPES,
    AudioFormat,
    ClientMessage,
    ErrorMessage,
    InputText,
    ResponseCancel,
    ResponseCreate,
    ResponseCreated,
    SessionCreated,
    SessionLimits,
)
from app.api.live.response import LiveResponse
from app.api.live.socket import ClientGone, LiveSocket
from app.api.model_names import check_model
from app.api.nulls import without_nulls
from app.api.reports.recent import RecentSpeeches
from app.api.schemas import ErrorDetail
from app.engine.continued import GrowingSpeech
from app.engine.engine import SpeechEngine
from app.engine.errors import InvalidRequest, SpeechError
from app.settings import Settings

_IDLE_CLOSE = 1000


class LiveSession:
    """Reads what the client says while it is spoken to, so that it can be interrupted."""

    def __init__(
        self,
        websocket: WebSocket,
        engine: SpeechEngine,
        recent: RecentSpeeches,
        admission: Admission,
        settings: Settings,
    ) -> None:
        """Take an accepted WebSocket.

        Args:
            websocket: Of the client.
            engine: What speaks.
            recent: Where what becomes of responses is kept.
            admission: Whether its client may have one more response.
            settings: The limits.
        """
        self._websocket, self._engine, self._recent = websocket, engine, recent
        self._admission, self._settings = admission, settings
        self._socket = LiveSocket(websocket, settings.stall_timeout_s)
        self._response: LiveResponse | None = None
        self._active_s = monotonic()

    async def run(self) -> None:
        """Serve the client until it leaves, idles or stalls."""
        receiving = asyncio.create_task(self._receive())
        try:
            await self._greet()
            while await self._turn(receiving):
                if receiving.done():
                    receiving = asyncio.create_task(self._receive())
        except ClientGone:
            pass  # uvicorn drops the connection; a goodbye would wait behind what is not read
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            if self._response is not None:
                await self._response.close()

    async def _greet(self) -> None:
        settings = self._settings
        await self._socket.message(
            SessionCreated(
                model=self._engine.info.name,
                audio=AudioFormat(sample_rate_hz=self._engine.info.sample_rate_hz),
                limits=SessionLimits(
                    max_text_chars=settings.max_text_chars,
                    max_message_bytes=settings.max_body_bytes,
                    idle_timeout_s=settings.idle_timeout_s,
                    stall_timeout_s=settings.stall_timeout_s,
                ),
            )
        )

    async def _receive(self) -> str | bytes | None:
        """Return the next message; None once the client has left."""
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text: str | None = message.get("text")
        return message.get("bytes") or b"" if text is None else text

    async def _turn(self, receiving: "asyncio.Task[str | bytes | None]") -> bool:
        """Wait for one thing to happen and see to it; False ends the session.

        Raises:
            ClientGone: The client left, or takes nothing.
        """
        waiting: set[asyncio.Task[str | bytes | None] | asyncio.Task[None]] = {receiving}
        if self._response is not None:
            waiting.add(self._response.speaking)
        await asyncio.wait(
            waiting, timeout=max(0.0, self._idle_left_s), return_when=asyncio.FIRST_COMPLETED
        )
        if self._response is not None and self._response.speaking.done():
            await self._response.speaking
            self._response = None
            self._active_s = monotonic()
        if self._idle_left_s <= 0:
            await self._error(error_detail(422, "the session was idle", code="idle_timeout"))
            await self._socket.close(_IDLE_CLOSE, "idle")
            return False
        if receiving.done():
            message = receiving.result()
            if message is None:
                return False
            await self._take(message)
        return True

    @property
    def _idle_left_s(self) -> float:
        """How long the session may still be idle: what is refused, and says nothing, counts not."""
        limit_s, active_s = self._settings.idle_timeout_s, self._active_s
        if self._response is not None:
            if not self._response.waits_for_text:
                return limit_s
            active_s = max(active_s, self._response.active_s)
        return active_s + limit_s - monotonic()

    async def _take(self, raw: str | bytes) -> None:
        """See to a message; what is wrong with it is said, and the session goes on.

        Raises:
            ClientGone: The client cannot be told.
        """
        if isinstance(raw, bytes):
            await self._error(error_detail(422, "send text, not bytes", code="not_text"))
            return
        limit_bytes = self._settings.max_body_bytes
        if len(raw) > limit_bytes or len(raw.encode(errors="replace")) > limit_bytes:
            text = f"the message is larger than {limit_bytes} bytes"
            await self._error(error_detail(413, text, code="body_too_large"))
            return
        try:
            check_shape(raw)
            sent = without_nulls(raw, {"response.create": ResponseCreate})
            message = CLIENT_MESSAGE.validate_json(sent, strict=True)
        except (InvalidRequest, ValidationError) as error:
            await self._error(_told(error))
            return
        sequence = message.sequence if isinstance(message, InputText) else None
        try:
            await self._do(message)
        except SpeechError as refusal:
            await self._error(speech_error_detail(refusal), sequence)

    async def _do(self, message: ClientMessage) -> None:
        """Do what a message asks for.

        Raises:
            SpeechError: It cannot be done.
            ClientGone: The client cannot be told.
        """
        if self._response is not None and self._response.ending:
            await self._response.speaking
            self._response = None
        if isinstance(message, ResponseCreate):
            await self._create(message)
        elif self._response is None:
            sequence = message.sequence if isinstance(message, InputText) else None
            text = "no response is open; send response.create"
            await self._error(error_detail(422, text, param="type", code="no_response"), sequence)
        elif isinstance(message, ResponseCancel):
            await self._response.cancel()
            self._response = None
        else:
            await self._response.take(message)

    async def _create(self, wanted: ResponseCreate) -> None:
        """Begin a response.

        Raises:
            SpeechError: It cannot be met.
            ClientGone: The client cannot be told.
        """
        if self._response is not None:
            text = "a response is open; end its text and wait for response.done, or cancel it"
            await self._error(error_detail(422, text, param="type", code="response_open"))
            return
        check_model(wanted.model, self._engine.info.name)
        self._engine.check_ready()
        who = asker(self._websocket)
        await self._admission.count(who)
        with ExitStack() as work:
            work.enter_context(self._admission.work(who))
            job = wanted.job_of("", uuid4().hex, self._websocket.state.owner, who)
            await self._socket.message(ResponseCreated(response_id=job.id))
            speech = GrowingSpeech(
                self._engine,
                job,
                max_text_chars=self._settings.max_text_chars,
                busy_timeout_s=self._settings.request_timeout_s,
            )
            self._response = LiveResponse(
                self._socket,
                job,
                speech,
                self._recent,
                self._websocket.app.state.reports,
                sample_rate_hz=self._engine.info.sample_rate_hz,
                voices=self._engine.voices,
                workshop=self._websocket.app.state.workshop,
                who=who,
            )
            at_work = work.pop_all()
        self._response.speaking.add_done_callback(lambda _: at_work.close())
        self._active_s = monotonic()

    async def _error(self, error: ErrorDetail, sequence: int | None = None) -> None:
        """Tell what was refused.

        Raises:
            ClientGone: It cannot be told.
        """
        response_id = self._response.id if self._response is not None else None
        await self._socket.message(
            ErrorMessage(response_id=response_id, sequence=sequence, error=error)
        )


def _told(error: InvalidRequest | ValidationError) -> ErrorDetail:
    """Return what is wrong with a message; the name of its type is no part of a field's name."""
    try:
        if isinstance(error, InvalidRequest):
            raise error
        problems = problems_of(error)
    except InvalidRequest as refusal:
        return speech_error_detail(refusal)
    if problems[0]["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        kinds = ", ".join(CLIENT_MESSAGE_TYPES)
        return error_detail(
            422, f"type: must be one of {kinds}", param="type", code=problems[0]["type"]
        )
    return validation_error_detail([{**one, "loc": one["loc"][1:]} for one in problems])
