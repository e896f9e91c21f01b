"""A speech as server-sent events, with OpenAI's event names."""

from base64 import b64encode
from typing import Literal

from pydantic import BaseModel, Field
from pydantic_core import to_json

from app.api.errors import speech_error_detail
from app.api.responses import EVENT_STREAM, NDJSON, usage_of
from app.api.schemas import ErrorDetail, SpeechDone
from app.api.speech.framing import Framing
from app.engine.errors import SpeechError
from app.engine.job import AudioChunk, SpeechResult, WordTimes


class SpeechAudioDelta(BaseModel):
    """The next bytes of the audio file."""

    type: Literal["speech.audio.delta"] = "speech.audio.delta"
    audio: str = Field(description="The bytes, in base64.")


class SpeechTimestamps(BaseModel):
    """Words that are heard from the next `speech.audio.delta` on, or of which more is known now."""

    type: Literal["speech.timestamps"] = "speech.timestamps"
    words: list[WordTimes]


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
        return self._line(event.model_dump_json().encode())

    def _line(self, content: bytes) -> bytes:
        return content + b"\n" if self._lines else b"data: " + content + b"\n\n"

    def before(self, chunk: AudioChunk) -> bytes:
        """Return the event with the words of a chunk, if it has any."""
        if not chunk.words:
            return b""
        words = [one.at_speed(self._speed) for one in chunk.words]
        return self.encoded(SpeechTimestamps(words=words))

    def sound(self, part: bytes) -> bytes:
        """Return the event with the next bytes of the file."""
        return self.encoded(SpeechAudioDelta(audio=b64encode(part).decode()))

    def done(self, result: SpeechResult, audio_s: float) -> bytes:
        """Return the last event of a speech that succeeded; see `Framing.done`."""
        done = SpeechDone(
            type="speech.audio.done",
            response_id=result.job_id,
            finish_reason=result.finish_reason,
            seed=result.seed,
            codes_sha256=result.codes_sha256,
            audio_s=round(audio_s, 6),
            timings=result.timings,
            usage=usage_of(result),
            utterances=[one.at_speed(self._speed) for one in result.utterances],
        )
        fields = done.model_dump(mode="json", exclude={"audio_bytes", "first_audio_s"})
        first = {name: fields.pop(name) for name in ("type", "usage")}  # as OpenAI's events have it
        return self._line(to_json(first | fields))

    def failed(self, error: SpeechError) -> bytes:
        """Return the last event of a speech that failed."""
        return self.encoded(SpeechAudioError(error=speech_error_detail(error)))
