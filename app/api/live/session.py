"""A live session: one WebSocket and its responses, one after the other."""

import asyncio
from contextlib import ExitStack
from dataclasses import replace
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
from app.api.gate.admission import Admission, client_of
from app.api.gate.limits import check_json_size
from app.api.live.messages import (
    CLIENT_MESSAGE,
    CLIENT_MESSAGE_TYPES,
    ClientMessage,
    ErrorMessage,
    FrameFormat,
    InputText,
    ResponseCancel,
    ResponseCreate,
    ResponseCreated,
    SessionCreated,
    SessionLimits,
)
from app.api.live.response import LiveResponse
from app.api.live.socket import ClientGone, LiveSocket
from app.api.reports.recent import RecentSpeeches
from app.api.requests import check_model, ignored_fields, model_names, without_nulls
from app.api.schemas import ErrorDetail
from app.engine.continued import GrowingSpeech
from app.engine.engine import SpeechEngine
from app.engine.errors import InvalidRequest, SpeechError
from app.settings import Settings

_IDLE_CLOSE = 1000


class LiveSession:
    """Reads messages while a response is sent, so that the response can be cancelled."""

    def __init__(
        self,
        websocket: WebSocket,
        engine: SpeechEngine,
        recent: RecentSpeeches,
        admission: Admission,
        settings: Settings,
    ) -> None:
        """Initialise with an accepted WebSocket.

        Args:
            websocket: The WebSocket.
            engine: The engine.
            recent: Store of results.
            admission: Limits of the client.
            settings: Limits of a session.
        """
        self._websocket, self._engine, self._recent = websocket, engine, recent
        self._admission, self._settings = admission, settings
        self._socket = LiveSocket(websocket, settings.stall_timeout_s)
        self._response: LiveResponse | None = None
        self._active_s = monotonic()

    async def run(self) -> None:
        """Serve the client until it disconnects, idles or stalls."""
        receiving = asyncio.create_task(self._receive())
        try:
            await self._send_created()
            while await self._turn(receiving):
                if receiving.done():
                    receiving = asyncio.create_task(self._receive())
        except ClientGone:
            pass  # uvicorn drops the connection; a close frame would wait behind unread data
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            if self._response is not None:
                await self._response.close()

    async def _send_created(self) -> None:
        settings = self._settings
        await self._socket.message(
            SessionCreated(
                model=self._engine.info.name,
                audio=FrameFormat(sample_rate_hz=self._engine.info.sample_rate_hz),
                limits=SessionLimits(
                    max_text_chars=settings.max_text_chars,
                    max_message_bytes=settings.max_body_bytes,
                    idle_timeout_s=settings.idle_timeout_s,
                    stall_timeout_s=settings.stall_timeout_s,
                ),
            )
        )

    async def _receive(self) -> str | bytes | None:
        """Return the next message; None once the client has disconnected."""
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text: str | None = message.get("text")
        return message.get("bytes") or b"" if text is None else text

    async def _turn(self, receiving: "asyncio.Task[str | bytes | None]") -> bool:
        """Wait for a message, the end of the response or the idle timeout, and handle it.

        Returns:
            False if the session has ended.

        Raises:
            ClientGone: The client has disconnected or does not read.
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
            await self._handle(message)
        return True

    @property
    def _idle_left_s(self) -> float:
        """Seconds until the idle timeout; refused messages and blank text do not reset it."""
        limit_s, active_s = self._settings.idle_timeout_s, self._active_s
        if self._response is not None:
            if not self._response.waits_for_text:
                return limit_s
            active_s = max(active_s, self._response.active_s)
        return active_s + limit_s - monotonic()

    async def _handle(self, raw: str | bytes) -> None:
        """Parse and execute a message; send an error if it is refused.

        Raises:
            ClientGone: The client has disconnected or does not read.
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
            check_json_size(raw)
            sent = without_nulls(raw, {"response.create": ResponseCreate})
            message = CLIENT_MESSAGE.validate_json(sent, strict=True)
        except (InvalidRequest, ValidationError) as error:
            await self._error(_parse_error_detail(error))
            return
        sequence = message.sequence if isinstance(message, InputText) else None
        try:
            await self._execute(message)
        except SpeechError as refusal:
            await self._error(speech_error_detail(refusal), sequence)

    async def _execute(self, message: ClientMessage) -> None:
        """Execute a message.

        Raises:
            SpeechError: It is refused.
            ClientGone: The client has disconnected or does not read.
        """
        if self._response is not None and self._response.ending:
            await self._response.speaking
            self._response = None
        if isinstance(message, ResponseCreate):
            await self._create(message)
        elif self._response is None:
            sequence = message.sequence if isinstance(message, InputText) else None
            text = "no response is open; send response.create first"
            await self._error(error_detail(422, text, param="type", code="no_response"), sequence)
        elif isinstance(message, ResponseCancel):
            await self._response.cancel()
            self._response = None
        else:
            await self._response.take(message)

    async def _create(self, wanted: ResponseCreate) -> None:
        """Start a response.

        Raises:
            SpeechError: The request is refused.
            ClientGone: The client has disconnected or does not read.
        """
        if self._response is not None:
            text = "a response is open; end its text and wait for response.done, or cancel it"
            await self._error(error_detail(422, text, param="type", code="response_open"))
            return
        loaded = self._engine.info.name
        check_model(wanted.model, loaded, model_names(self._settings))
        response_id = uuid4().hex
        ignored = ignored_fields(wanted, self._settings, response_id)
        self._engine.check_ready()
        client = client_of(self._websocket)
        kept = await self._recent.take(wanted.continue_from, self._websocket.state.owner)
        await self._admission.count(client)
        with ExitStack() as work:
            work.enter_context(await self._admission.work(client))
            job = wanted.job_of("", response_id, self._websocket.state.owner, client)
            job = replace(job, kept=kept)
            await self._socket.message(ResponseCreated(response_id=job.id, ignored=ignored))
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
                render_pool=self._websocket.app.state.render_pool,
                client=client,
            )
            work_in_progress = work.pop_all()
        self._response.speaking.add_done_callback(lambda _: work_in_progress.close())
        self._active_s = monotonic()

    async def _error(self, error: ErrorDetail, sequence: int | None = None) -> None:
        """Send an error message.

        Raises:
            ClientGone: The client has disconnected or does not read.
        """
        response_id = self._response.id if self._response is not None else None
        await self._socket.message(
            ErrorMessage(response_id=response_id, sequence=sequence, error=error)
        )


def _parse_error_detail(error: InvalidRequest | ValidationError) -> ErrorDetail:
    """Return the error detail of an invalid message, without its type in the field's name."""
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
