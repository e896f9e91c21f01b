"""A speech as server-sent events, with OpenAI's event names."""

from base64 import b64encode
from typing import Literal

from pydantic import BaseModel, Field
from starlette.responses import Response

from app.api.responses import EVENT_STREAM, usage_of
from app.api.schemas import ErrorDetail, Usage, UtteranceText, WordTimes
from app.engine.job import FinishReason, SpeechResult, Timings


class SpeechAudioDelta(BaseModel):
    """The next bytes of the audio file."""

    type: Literal["speech.audio.delta"] = "speech.audio.delta"
    audio: str = Field(description="The bytes, in base64.")


class SpeechTimestamps(BaseModel):
    """Words that are heard from the next `speech.audio.delta` on, or of which more is known now."""

    type: Literal["speech.timestamps"] = "speech.timestamps"
    words: list[WordTimes]


class SpeechAudioDone(BaseModel):
    """The file is complete; the last event of a speech that succeeded."""

    type: Literal["speech.audio.done"] = "speech.audio.done"
    usage: Usage
    response_id: str = Field(description="Id for GET /v1/audio/speech/{id}.")
    finish_reason: FinishReason
    seed: int
    codes_sha256: str
    audio_s: float = Field(description="Seconds of audio sent.")
    timings: Timings
    utterances: list[UtteranceText]

    @classmethod
    def of(
        cls, result: SpeechResult, audio_s: float, usage: Usage, speed: float
    ) -> "SpeechAudioDone":
        """Return the event for a result.

        Args:
            result: The engine's result.
            audio_s: Seconds of audio sent.
            usage: Token counts.
            speed: Of the playback.
        """
        return cls(
            usage=usage,
            response_id=result.job_id,
            finish_reason=result.finish_reason,
            seed=result.seed,
            codes_sha256=result.codes_sha256,
            audio_s=audio_s,
            timings=result.timings,
            utterances=UtteranceText.all_of(result, speed),
        )


class SpeechAudioError(BaseModel):
    """The speech failed and the file is incomplete; the last event in place of `done`."""

    type: Literal["speech.audio.error"] = "speech.audio.error"
    error: ErrorDetail


def delta(part: bytes) -> SpeechAudioDelta:
    """Return the event for bytes of the file."""
    return SpeechAudioDelta(audio=b64encode(part).decode())


def encode_event(event: BaseModel) -> bytes:
    """Return an event in the format of server-sent events."""
    return b"data: " + event.model_dump_json().encode() + b"\n\n"


def whole_events(content: bytes, result: SpeechResult, speed: float) -> Response:
    """Return the response with the events of a whole file.

    Args:
        content: The file.
        result: The engine's result.
        speed: Of the playback.
    """
    done = SpeechAudioDone.of(result, result.audio_s / speed, usage_of(result), speed)
    return Response(encode_event(delta(content)) + encode_event(done), media_type=EVENT_STREAM)
