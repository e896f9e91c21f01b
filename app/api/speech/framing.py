"""The shape of a response's body: the file as it is, events, or codes."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from pydantic import BaseModel, Field
from pydantic_core import to_json
from safetensors.numpy import save

from app.api.errors import speech_error_detail
from app.api.responses import EVENT_STREAM, NDJSON, SAFETENSORS
from app.api.schemas import ErrorDetail, SpeechDone, SpeechRequest, Usage
from app.audio.formats import MEDIA_TYPES
from app.engine.errors import InvalidRequest, SpeechError
from app.engine.interface import ModelInfo
from app.engine.job import AudioChunk, Codes, SpeechResult, UtteranceCodes, WordTimes

_JSON: Final = "application/json"


class Framing:
    """The file as it is; the base of other shapes. One object serves one response.

    Attributes:
        media_type: Of the response.
    """

    def __init__(self, media_type: str) -> None:
        self.media_type = media_type

    def before(self, chunk: AudioChunk) -> bytes:  # noqa: ARG002
        """Return what is sent before the sound of a chunk."""
        return b""

    def sound(self, part: bytes) -> bytes:
        """Return the next bytes of the file, in this shape."""
        return part

    def done(self, result: SpeechResult, audio_s: float) -> bytes:  # noqa: ARG002
        """Return the end of a speech that succeeded.

        Args:
            result: The engine's result.
            audio_s: Seconds of audio sent.
        """
        return b""

    def failed(self, error: SpeechError) -> bytes:  # noqa: ARG002
        """Return the end of a speech that failed; if empty, the connection is cut off instead."""
        return b""

    def whole(self, file: bytes, result: SpeechResult, audio_s: float) -> bytes:
        """Return the body with a speech that is complete.

        Args:
            file: The audio.
            result: The engine's result.
            audio_s: Seconds of audio in it.
        """
        return self.sound(file) + self.done(result, audio_s)


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
            usage=Usage.of(result),
            utterances=[one.at_speed(self._speed) for one in result.utterances],
        )
        fields = done.model_dump(mode="json", exclude={"audio_bytes", "first_audio_s"})
        first = {name: fields.pop(name) for name in ("type", "usage")}  # as OpenAI's events have it
        return self._line(to_json(first | fields))

    def failed(self, error: SpeechError) -> bytes:
        """Return the last event of a speech that failed."""
        return self.encoded(SpeechAudioError(error=speech_error_detail(error)))


class SpeechCodesDelta(BaseModel):
    """The next frames of an utterance, all levels; they do not change any more."""

    type: Literal["speech.codes.delta"] = "speech.codes.delta"
    utterance: int = Field(description="Number of the utterance, from 0.")
    codes: list[list[int]] = Field(description="One list per frame, with its levels in order.")


class WholeCodes(Framing):
    """The codes of a whole speech, as JSON or as tensors, without its file."""

    def __init__(self, info: ModelInfo, *, tensors: bool) -> None:
        super().__init__(SAFETENSORS if tensors else _JSON)
        self._info = info

    def whole(self, file: bytes, result: SpeechResult, audio_s: float) -> bytes:  # noqa: ARG002
        """Return the codes; see `codes_body` and `Framing.whole`."""
        codes = [one.codes for one in result.utterances]
        hashes = {"model_sha256": self._info.sha256, "codes_sha256": result.codes_sha256}
        fields = {"utterances": [one.tolist() for one in codes]}
        return codes_body(self.media_type, hashes | rates_of(self._info), codes, fields)


class CodeEvents(Events):
    """Events with codes in place of the file, as server-sent events or a JSON object a line."""

    def before(self, chunk: AudioChunk) -> bytes:
        """Return the events with the words and the codes of a chunk."""
        return super().before(chunk) + b"".join(map(self._delta, chunk.codes))

    def sound(self, part: bytes) -> bytes:  # noqa: ARG002
        """Return nothing."""
        return b""

    def whole(self, file: bytes, result: SpeechResult, audio_s: float) -> bytes:  # noqa: ARG002
        """Return an event for each utterance with codes, and the last; see `Framing.whole`."""
        every = (UtteranceCodes(number, one.codes) for number, one in enumerate(result.utterances))
        deltas = b"".join(self._delta(one) for one in every if len(one.codes))
        return deltas + self.done(result, audio_s)

    def _delta(self, drawn: UtteranceCodes) -> bytes:
        codes = drawn.codes.tolist()
        return self.encoded(SpeechCodesDelta(utterance=drawn.utterance, codes=codes))


def framing_of(wanted: SpeechRequest, accept: str, info: ModelInfo) -> Framing:
    """Return the shape that a request asks for.

    Args:
        accept: The header of the request.

    Raises:
        InvalidRequest: It asks for what codes do not have.
    """
    if wanted.response_format != "codes":
        if wanted.stream_format == "sse":
            return Events(wanted.speed)
        return Framing(MEDIA_TYPES[wanted.response_format])
    if wanted.speed != 1:
        raise InvalidRequest("codes have no speed: leave it out, or ask for audio", param="speed")
    if wanted.loudness_lufs is not None:
        raise InvalidRequest(
            "codes have no loudness: leave it out, or ask for audio", param="loudness_lufs"
        )
    tensors = SAFETENSORS in accept
    if not wanted.streamed:
        return WholeCodes(info, tensors=tensors)
    if tensors:
        raise InvalidRequest(
            "tensors are sent whole: do not stream, or accept JSON",
            param="stream" if wanted.stream else "stream_format",
        )
    return CodeEvents(wanted.speed, lines=wanted.stream_format == "audio")


def codes_body(
    media_type: str, notes: Mapping[str, str], codes: Sequence[Codes], fields: Mapping[str, Any]
) -> bytes:
    """Return codes as safetensors, `0`, `1` and so on, or as JSON.

    Args:
        media_type: Of either.
        notes: Metadata of the tensors, or fields of the JSON.
        codes: ``[T, K]`` of each utterance.
        fields: The fields of the JSON with the codes.
    """
    if media_type == SAFETENSORS:
        tensors = {str(number): np.ascontiguousarray(one) for number, one in enumerate(codes)}
        return save(tensors, dict(notes))
    return to_json({**notes, **fields})


def rates_of(info: ModelInfo) -> dict[str, str]:
    """Return the rates of codes and sound, as text, as safetensors have it."""
    return {
        "frame_rate_hz": f"{info.frame_rate_hz:g}",
        "sample_rate_hz": str(info.sample_rate_hz),
    }
