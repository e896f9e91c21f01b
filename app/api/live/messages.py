"""Messages of the WebSocket protocol `valle.speech.v1`. Loads without torch.

`docs/streaming.md` describes their order. Audio is sent as binary frames between `response.started`
and `response.done`. Unknown messages and fields are refused, never ignored.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from app.api.schemas import ErrorDetail, SpeechOptions
from app.audio.formats import AudioFormat
from app.engine.job import WordTimes

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
CLIENT_MESSAGE_TYPES: Final = tuple(
    sorted(CLIENT_MESSAGE.json_schema()["discriminator"]["mapping"])
)
"""Values of `type` that clients may send."""


Encoding = Literal["pcm_s16le", "pcm_mulaw", "pcm_alaw"]


class FrameFormat(BaseModel):
    """Format of the binary frames."""

    encoding: Encoding = "pcm_s16le"
    sample_rate_hz: int
    channels: Literal[1] = 1


ENCODINGS: Final[Mapping[AudioFormat, Encoding]] = {
    "pcm": "pcm_s16le",
    "ulaw": "pcm_mulaw",
    "alaw": "pcm_alaw",
}


class SessionLimits(BaseModel):
    """Limits of a session."""

    max_text_chars: int = Field(description="Length of the text of one response.")
    max_message_bytes: int = Field(description="Size of one message.")
    idle_timeout_s: float = Field(description="Seconds without messages and without speech.")
    stall_timeout_s: float = Field(description="Seconds without the client reading.")


class SessionCreated(BaseModel):
    """The first message of a session."""

    type: Literal["session.created"] = "session.created"
    protocol: Literal["valle.speech.v1"] = PROTOCOL
    model: str
    audio: FrameFormat
    limits: SessionLimits


class ResponseCreated(BaseModel):
    """The response is open for text."""

    type: Literal["response.created"] = "response.created"
    response_id: str = Field(description="Id for GET /v1/audio/speech/{id}, once it is done.")
    ignored: list[str] = Field(description="Fields of the request that do nothing.")
    audio: FrameFormat = Field(description="Format of its binary frames.")


class InputTextAck(BaseModel):
    """A text message was accepted."""

    type: Literal["input_text.ack"] = "input_text.ack"
    response_id: str
    sequence: int


class ResponseStarted(BaseModel):
    """Audio follows."""

    type: Literal["response.started"] = "response.started"
    response_id: str
    ignored: list[str] = Field(description="Knobs that do nothing, as another is not set.")
    seed: int
    preset: str
    voice: str
    language: str


class ResponseTimestamps(BaseModel):
    """Words that are heard from the next frame on, or of which more is known now."""

    type: Literal["response.timestamps"] = "response.timestamps"
    response_id: str
    words: list[WordTimes]


class ErrorMessage(BaseModel):
    """A message was refused or a response failed; a failed response's `response.done` follows."""

    type: Literal["error"] = "error"
    response_id: str | None = None
    sequence: int | None = Field(None, description="Sequence of the message that was refused.")
    error: ErrorDetail
