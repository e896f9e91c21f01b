"""A speech as server-sent events, with OpenAI's event names."""

from base64 import b64encode
from typing import Literal

from pydantic import BaseModel, Field

from app.api.errors import speech_error_detail
from app.api.responses import EVENT_STREAM, NDJSON, usage_of
from app.api.schemas import ErrorDetail, Usage, UtteranceText, WordTimes
from app.api.speech.framing import Framing
from app.engine.errors import SpeechError
from app.engine.job import AudioChunk, FinishReason, SpeechResult, Timings


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
    def of(cls, result: SpeechResult, audio_s: float, speed: float) -> "SpeechAudioDone":
        """Return the event for a result.

        Args:
            result: The engine's result.
            audio_s: Seconds of audio sent.
            speed: Of the playback.
        """
        return cls(
            usage=usage_of(result),
            response_id=result.job_id,
            finish_reason=result.finish_reason,
            seed=result.seed,
            codes_sha256=result.codes_sha256,
            audio_s=round(audio_s, 6),
            timings=result.timings,
            utterances=UtteranceText.all_of(result, speed),
        )


class SpeechAudioError(BaseModel):
    """The speech failed and the file is incomplete; the last event in place of `done`."""

    type: Literal["speech.audio.error"] = "speech.audio.error"
    error: ErrorDetail


class Events(Framing):
    """Server-sent events with the bytes of the file and the times of words."""

    def __init__(self, speed: float, *, lines: bool = False) -> None:
        super().__init__(NDJSON if lines else EVENT_STREAM)
        self._speed, self._lines = speed, lines

    def encoded(self, event: BaseModel) -> bytes:
        """Return an event as it is sent."""
        content = event.model_dump_json().encode()
        return content + b"\n" if self._lines else b"data: " + content + b"\n\n"

    def before(self, chunk: AudioChunk) -> bytes:
        """Return the event with the words of a chunk, if it has any."""
        if not chunk.words:
            return b""
        words = [WordTimes.of(one, self._speed) for one in chunk.words]
        return self.encoded(SpeechTimestamps(words=words))

    def sound(self, part: bytes) -> bytes:
        """Return the event with the next bytes of the file."""
        return self.encoded(SpeechAudioDelta(audio=b64encode(part).decode()))

    def done(self, result: SpeechResult, audio_s: float) -> bytes:
        """Return the last event of a speech that succeeded; see `Framing.done`."""
        return self.encoded(SpeechAudioDone.of(result, audio_s, self._speed))

    def failed(self, error: SpeechError) -> bytes:
        """Return the last event of a speech that failed."""
        return self.encoded(SpeechAudioError(error=speech_error_detail(error)))
