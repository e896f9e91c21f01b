"""The WebSocket protocol `valle.speech.v1`: its messages, and one response after the other.

`docs/streaming.md` describes their order. Audio is sent as binary frames between `response.started`
and `response.done`. Unknown messages and fields are refused, never ignored.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.websockets import WebSocket

from app.api.errors import (
    error_detail,
    problems_of,
    speech_error_detail,
    validation_error_detail,
)
from app.api.history.writer import ReportWriter, utterance_pieces, warnings_for
from app.api.lenient import validated
from app.api.realtime.session import WebSocketSession
from app.api.realtime.speech import LiveSocket, LiveSpeech, SpeechMessages
from app.api.requests import check_json_size, check_model, cleaned_body, ignored_fields, model_names
from app.api.schemas import ErrorDetail, SpeechOptions, Usage
from app.api.services import Services
from app.audio.delivery import FileOptions
from app.audio.formats import AudioFormat
from app.engine.core import Plan, SpeechResult
from app.engine.errors import InvalidRequest, SpeechError
from app.engine.results import WordTimes
from samplers.knobs.features import idle_knobs

PROTOCOL: Final = "valle.speech.v1"
"""The WebSocket subprotocol."""


class _FromClient(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseCreate(SpeechOptions):
    """Start a response; its text follows."""

    model_config = ConfigDict(title="ResponseCreate")

    type: Literal["response.create"]
    response_format: Literal["pcm", "ulaw", "alaw"] = Field(
        "pcm", description="16 bit, little-endian, mono, or 8 bit as telephones have it."
    )


class _Numbered(_FromClient):
    sequence: int = Field(ge=0, description="0 for the first of a response, then 1, 2, ...")


class InputTextAppend(_Numbered):
    """Append text."""

    type: Literal["input_text.append"]
    text: str


class InputTextFlush(_Numbered):
    """Speak the text so far, as if a sentence ended."""

    type: Literal["input_text.flush"]


class InputTextEnd(_Numbered):
    """End the text."""

    type: Literal["input_text.end"]


class ResponseCancel(_FromClient):
    """Cancel the response."""

    type: Literal["response.cancel"]


InputText = InputTextAppend | InputTextFlush | InputTextEnd
ClientMessage = ResponseCreate | InputText | ResponseCancel
CLIENT_MESSAGE: Final[TypeAdapter[ClientMessage]] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)


def message_types(messages: TypeAdapter[Any]) -> list[str]:
    """Return the values of `type` that clients may send."""
    # A JSON schema of them takes a tenth of a second of the event loop.
    schema: Any = messages.core_schema
    while "choices" not in schema:
        schema = schema["schema"]
    return sorted(schema["choices"])


ENCODINGS: Final[Mapping[AudioFormat, str]] = {
    "pcm": "pcm_s16le",
    "ulaw": "pcm_mulaw",
    "alaw": "pcm_alaw",
}
"""Formats of the binary frames, and what messages call them."""


def _frames(form: AudioFormat, sample_rate_hz: int) -> dict[str, Any]:
    return {"encoding": ENCODINGS[form], "sample_rate_hz": sample_rate_hz, "channels": 1}


_IDLE_CLOSE = 1000
_OPEN = "response"


class ValleSession(WebSocketSession):
    """A WebSocket of protocol `valle.speech.v1`, or of one that differs in its messages alone."""

    messages: ClassVar[TypeAdapter[Any]] = CLIENT_MESSAGE  # those of the client
    creates: ClassVar[type[SpeechOptions]] = ResponseCreate  # the one that begins a response
    created_by: ClassVar[str] = "response.create"  # its type

    def __init__(self, websocket: WebSocket, services: Services) -> None:
        super().__init__(websocket, services)
        self._settings = services.settings
        self._sequence = 0

    async def opened(self) -> None:
        """Send `session.created`."""
        settings = self._settings
        info = self._services.engine.info
        await self._socket.message(
            "session.created",
            protocol=PROTOCOL,
            model=info.name,
            audio=_frames("pcm", info.sample_rate_hz),
            limits={
                "max_text_chars": settings.max_text_chars,
                "max_message_bytes": settings.max_body_bytes,
                "idle_timeout_s": settings.idle_timeout_s,
                "stall_timeout_s": settings.stall_timeout_s,
            },
        )

    async def timed_out(self) -> None:
        """Send an error and close."""
        await self._error(error_detail(422, "the session was idle", code="idle_timeout"))
        await self._socket.close(_IDLE_CLOSE, "idle")

    async def handle(self, message: str | bytes) -> None:
        """Parse and execute a message; send an error if it is refused."""
        if isinstance(message, bytes):
            await self._error(error_detail(422, "send text, not bytes", code="not_text"))
            return
        limit_bytes = self._settings.max_body_bytes
        if len(message) > limit_bytes or len(message.encode(errors="replace")) > limit_bytes:
            text = f"the message is larger than {limit_bytes} bytes"
            await self._error(error_detail(413, text, code="body_too_large"))
            return
        try:
            check_json_size(message)
            sent, ignored = cleaned_body(message, {self.created_by: self.creates})
            parsed = validated(lambda text: self.messages.validate_json(text, strict=True), sent)
        except (InvalidRequest, ValidationError) as error:
            await self._error(_parse_error_detail(error, self.messages))
            return
        sequence = parsed.sequence if isinstance(parsed, InputText) else None
        try:
            await self._execute(parsed, ignored)
        except SpeechError as refusal:
            await self._error(speech_error_detail(refusal), sequence)

    async def _execute(
        self, message: SpeechOptions | InputText | ResponseCancel, ignored: list[str]
    ) -> None:
        await self.settle()
        speech = self.speeches.get(_OPEN)
        if isinstance(message, SpeechOptions):
            await self._create(message, ignored)
        elif speech is None:
            sequence = message.sequence if isinstance(message, InputText) else None
            text = f"no response is open; send {self.created_by} first"
            await self._error(error_detail(422, text, param="type", code="no_response"), sequence)
        elif isinstance(message, ResponseCancel):
            await self.cancel(_OPEN)
        else:
            await self._take(speech, message)

    async def _create(self, wanted: SpeechOptions, ignored: list[str]) -> None:
        if self.speeches:
            text = "a response is open; end its text and wait for response.done, or cancel it"
            await self._error(error_detail(422, text, param="type", code="response_open"))
            return
        services = self._services
        check_model(wanted.model, services.engine.info.name, model_names(self._settings))
        form, messages = self.response(wanted)
        messages.ignored = ignored + ignored_fields(wanted, self._settings, messages.id)
        await self.begin(_OPEN, wanted, form, messages)
        self._sequence = 0

    def response(self, wanted: SpeechOptions) -> tuple[AudioFormat, "ResponseMessages"]:
        """Return the format of a response, and what sends its messages."""
        assert isinstance(wanted, ResponseCreate)
        form = wanted.response_format
        return form, ResponseMessages(self._socket, wanted, self._services, form)

    async def acknowledge(self, response_id: str, message: InputText) -> None:
        """Tell that a message was taken."""
        await self._socket.message(
            "input_text.ack", response_id=response_id, sequence=message.sequence
        )

    async def _take(self, speech: LiveSpeech, message: InputText) -> None:
        if message.sequence != self._sequence:
            raise InvalidRequest(
                f"sequence must be {self._sequence}, not {message.sequence}", param="sequence"
            )
        if isinstance(message, InputTextAppend):
            await speech.append(message.text)
        elif isinstance(message, InputTextFlush):
            speech.growing.flush()
        else:
            speech.growing.end()
        self._sequence += 1
        await self.acknowledge(speech.id, message)

    async def _error(self, error: ErrorDetail, sequence: int | None = None) -> None:
        speech = self.speeches.get(_OPEN)
        await self._socket.message(
            "error", response_id=speech and speech.id, sequence=sequence, error=error
        )


class ResponseMessages(SpeechMessages):
    """The messages of one response."""

    def __init__(
        self,
        socket: LiveSocket,
        wanted: SpeechOptions,
        services: Services,
        form: Literal["pcm", "ulaw", "alaw"] = "pcm",
    ) -> None:
        super().__init__()
        self._socket = socket
        self._wanted = wanted
        self._form = form
        self._reports: ReportWriter = services.reports
        self._rate_hz = services.engine.info.sample_rate_hz
        self.ignored: list[str] = []  # fields of the request that do nothing
        self._utterances = 0

    async def accepted(self) -> None:
        """Send `response.created`."""
        form = self._form
        output = FileOptions(form, sample_rate=self._wanted.sample_rate)
        rate_hz = output.rate_hz(self._rate_hz)
        await self._send("response.created", ignored=self.ignored, audio=_frames(form, rate_hz))

    async def started(self, plan: Plan) -> None:
        """Send `response.started`."""
        await self._send(
            "response.started",
            ignored=[*idle_knobs(plan.params, self._wanted.model_fields_set)],
            seed=plan.seed,
            preset=plan.params.preset,
            voice=plan.voice.name,
            language=plan.language,
        )

    async def sound(self, sound: bytes, words: Sequence[WordTimes]) -> None:
        """Send `response.timestamps` and a binary frame."""
        if words:
            await self._send("response.timestamps", words=words)
        if sound:
            await self._socket.audio(sound)

    async def spoken(self, result: SpeechResult) -> None:
        """Send a `response.trace` for each utterance, if traces were requested."""
        for spoken in result.utterances if self._wanted.trace else ():
            more = {
                "type": "response.trace",
                "response_id": self.id,
                "utterance": self._utterances,
            }
            pieces = self._reports.write(utterance_pieces(spoken, self._wanted.speed, **more))
            self._utterances += 1
            await self._socket.text("".join([piece async for piece in pieces]))

    async def ended(
        self, speech: LiveSpeech, error: SpeechError | None, result: SpeechResult | None
    ) -> None:
        """Send the error, if there is one, and `response.done`."""
        if error is not None:
            await self._send("error", sequence=None, error=speech_error_detail(error))
        growing = speech.growing
        so_far = growing.result
        plan = growing.plan
        await self._send(
            "response.done",
            finish_reason=result.finish_reason if result else "error" if error else "cancelled",
            seed=plan.seed if plan else None,
            codes_sha256=result.codes_sha256 if result else None,
            audio_s=round(speech.audio_s, 6),
            audio_bytes=speech.audio_bytes,
            first_audio_s=speech.first_audio_s,
            timings=so_far.timings if so_far else None,
            usage=Usage.counted(growing.phonemes, so_far.frames if so_far else 0),
            warnings=warnings_for(growing.text, so_far) if so_far else (),
            left_out=so_far.left_out if so_far else (),
            utterances=so_far.utterances if so_far else (),
        )

    async def _send(self, kind: str, **fields: Any) -> None:
        await self._socket.message(kind, self._wanted.speed, response_id=self.id, **fields)


def _parse_error_detail(
    error: InvalidRequest | ValidationError, messages: TypeAdapter[Any]
) -> ErrorDetail:
    """Return the error detail of an invalid message, without its type in the field's name."""
    try:
        if isinstance(error, InvalidRequest):
            raise error
        problems = problems_of(error)
    except InvalidRequest as refusal:
        return speech_error_detail(refusal)
    if problems[0]["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        kinds = ", ".join(message_types(messages))
        return error_detail(
            422, f"type: must be one of {kinds}", param="type", code=problems[0]["type"]
        )
    return validation_error_detail([{**one, "loc": one["loc"][1:]} for one in problems])
