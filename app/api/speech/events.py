"""A speech as server-sent events, with the names that OpenAI gave them."""

from base64 import b64encode
from typing import Literal

from pydantic import BaseModel, Field

from app.api.schemas import ErrorDetail, Usage
from app.engine.job import FinishReason, SpeechResult, Timings

EVENT_STREAM = "text/event-stream"


class SpeechAudioDelta(BaseModel):
    """The next bytes of the file."""

    type: Literal["speech.audio.delta"] = "speech.audio.delta"
    audio: str = Field(description="The bytes, in base64.")


class SpeechAudioDone(BaseModel):
    """The file is whole. The last event, where nothing broke."""

    type: Literal["speech.audio.done"] = "speech.audio.done"
    usage: Usage
    response_id: str = Field(description="For GET /v1/audio/speech/{id}.")
    finish_reason: FinishReason
    seed: int
    codes_sha256: str
    audio_s: float = Field(description="Seconds of sound that were sent.")
    timings: Timings

    @classmethod
    def of(cls, result: SpeechResult, audio_s: float, usage: Usage) -> "SpeechAudioDone":
        """Tell what became of a speech.

        Args:
            result: What the engine says of it.
            audio_s: Seconds of sound that were sent.
            usage: How much was read and made.
        """
        return cls(
            usage=usage,
            response_id=result.job_id,
            finish_reason=result.finish_reason,
            seed=result.seed,
            codes_sha256=result.codes_sha256,
            audio_s=audio_s,
            timings=result.timings,
        )


class SpeechAudioError(BaseModel):
    """The speech broke: what was sent is not the whole. The last event, in place of `done`."""

    type: Literal["speech.audio.error"] = "speech.audio.error"
    error: ErrorDetail


def delta(sound: bytes) -> SpeechAudioDelta:
    """Return the event of some bytes."""
    return SpeechAudioDelta(audio=b64encode(sound).decode())


def line(event: BaseModel) -> bytes:
    """Return an event as it goes over the wire."""
    return b"data: " + event.model_dump_json().encode() + b"\n\n"
