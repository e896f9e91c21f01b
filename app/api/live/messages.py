"""What goes over the WebSocket as JSON: protocol `valle.speech.v1`. Loads without torch.

`docs/streaming.md` tells the order. Sound goes as binary frames between `response.started` and
`response.done`. Nothing that a client sends is ignored: what is not understood is refused.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from app.api.reports.recent import UtteranceReport
from app.api.schemas import ErrorDetail, SpeechOptions, Usage
from app.engine.job import FinishReason, Timings

PROTOCOL: Final = "valle.speech.v1"
"""The subprotocol that a client offers."""


class _FromClient(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseCreate(SpeechOptions):
    """Begin a response: how to speak. The text follows."""

    model_config = ConfigDict(title="ResponseCreate")

    type: Literal["response.create"]
    response_format: Literal["pcm"] = Field(
        "pcm", description="16 bits, little-endian, mono; the rate is in `session.created`."
    )


class _Numbered(_FromClient):
    sequence: int = Field(ge=0, description="0 for the first of a response, then 1, 2, ...")


class InputTextAppend(_Numbered):
    """More text."""

    type: Literal["input_text.append"]
    text: str


class InputTextFlush(_Numbered):
    """Speak what is there, as if a sentence ended."""

    type: Literal["input_text.flush"]


class InputTextEnd(_Numbered):
    """The text is whole."""

    type: Literal["input_text.end"]


class ResponseCancel(_FromClient):
    """Stop speaking at once."""

    type: Literal["response.cancel"]


InputText = InputTextAppend | InputTextFlush | InputTextEnd
ClientMessage = ResponseCreate | InputText | ResponseCancel
CLIENT_MESSAGE: Final[TypeAdapter[ClientMessage]] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)
CLIENT_MESSAGE_TYPES: Final = tuple(
    sorted(CLIENT_MESSAGE.json_schema()["discriminator"]["mapping"])
)
"""What the `type` of a message may be."""


class AudioFormat(BaseModel):
    """What the binary frames hold."""

    encoding: Literal["pcm_s16le"] = "pcm_s16le"
    sample_rate_hz: int
    channels: Literal[1] = 1


class SessionLimits(BaseModel):
    """What ends or refuses what."""

    max_text_chars: int = Field(description="Of the text of one response.")
    max_message_bytes: int = Field(description="Of one message.")
    idle_timeout_s: float = Field(description="Without a message and without speech.")
    stall_timeout_s: float = Field(description="Without the client reading.")


class SessionCreated(BaseModel):
    """The first message."""

    type: Literal["session.created"] = "session.created"
    protocol: Literal["valle.speech.v1"] = PROTOCOL
    model: str
    audio: AudioFormat
    limits: SessionLimits


class ResponseCreated(BaseModel):
    """A response begins; its text may come."""

    type: Literal["response.created"] = "response.created"
    response_id: str = Field(description="For GET /v1/audio/speech/{id}, once it is done.")


class InputTextAck(BaseModel):
    """A message of the text was taken."""

    type: Literal["input_text.ack"] = "input_text.ack"
    response_id: str
    sequence: int


class ResponseStarted(BaseModel):
    """Sound follows."""

    type: Literal["response.started"] = "response.started"
    response_id: str
    seed: int
    preset: str
    voice: str
    language: str


class ResponseTrace(UtteranceReport):
    """How an utterance was made, after its sound; only where `trace` was asked for."""

    type: Literal["response.trace"] = "response.trace"
    response_id: str
    utterance: int = Field(description="Its number in the response, from 0.")


class ResponseDone(BaseModel):
    """The response is over; no sound of it follows. Every `response.created` has one."""

    type: Literal["response.done"] = "response.done"
    response_id: str
    finish_reason: FinishReason
    seed: int | None = Field(description="Null where it ended before it started.")
    codes_sha256: str | None = Field(description="Null where it did not come to its end.")
    audio_s: float = Field(description="Seconds of sound that were sent.")
    audio_bytes: int = Field(description="Bytes of sound that were sent.")
    first_audio_s: float | None = Field(
        description="Seconds from the first text that was taken to the first sound that was sent."
    )
    timings: Timings | None
    usage: Usage


class ErrorMessage(BaseModel):
    """Something was refused or broke; where a response did, its `response.done` follows."""

    type: Literal["error"] = "error"
    response_id: str | None = None
    sequence: int | None = Field(None, description="Of the message that was refused.")
    error: ErrorDetail
