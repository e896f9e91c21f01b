"""The shapes of a body with a speech: a file, events, codes."""

from base64 import b64encode
from collections.abc import (
    Mapping,
    Sequence,
)
from typing import Any, Final

import numpy as np
from pydantic_core import to_json
from safetensors.numpy import save

from app.api.errors import speech_error_detail
from app.api.history.writer import warnings_for
from app.api.schemas import (
    EVENT_STREAM,
    NDJSON,
    SAFETENSORS,
    SpeechRequest,
    Usage,
    message,
)
from app.audio.formats import MEDIA_TYPES
from app.engine.core import AudioChunk, SpeechResult
from app.engine.errors import InvalidRequest, SpeechError
from app.engine.interface import ModelInfo
from app.engine.results import Codes, UtteranceCodes

_JSON: Final = "application/json"


class BodyFormat:
    """The file as it is; the base of other shapes. One object serves one response."""

    def __init__(self, media_type: str) -> None:
        self.media_type = media_type

    def before(self, chunk: AudioChunk) -> bytes:  # noqa: ARG002
        """Return what is sent before the sound of a chunk."""
        return b""

    def sound(self, part: bytes) -> bytes:
        """Return the next bytes of the file, in this shape."""
        return part

    def done(self, result: SpeechResult, audio_s: float) -> bytes:  # noqa: ARG002
        """Return the end of a speech that succeeded, with so many seconds of audio sent."""
        return b""

    def failed(self, error: SpeechError) -> bytes:  # noqa: ARG002
        """Return the end of a speech that failed; if empty, the connection is cut off instead."""
        return b""

    def whole(self, file: bytes, result: SpeechResult, audio_s: float) -> bytes:
        """Return the body with a complete speech, a file with so many seconds of audio."""
        return self.sound(file) + self.done(result, audio_s)


class Events(BodyFormat):
    """Server-sent events with the bytes of the file and the times of words."""

    def __init__(self, text: str, speed: float, *, lines: bool = False) -> None:
        super().__init__(NDJSON if lines else EVENT_STREAM)
        self._text = text
        self._speed = speed
        self._lines = lines

    def event(self, kind: str, **fields: Any) -> bytes:
        """Return an event as it is sent; see `message`."""
        content = message(kind, self._speed, **fields)
        return content + b"\n" if self._lines else b"data: " + content + b"\n\n"

    def before(self, chunk: AudioChunk) -> bytes:
        """Return the event with the words of a chunk, if it has any."""
        return self.event("speech.timestamps", words=chunk.words) if chunk.words else b""

    def sound(self, part: bytes) -> bytes:
        """Return the event with the next bytes of the file."""
        return self.event("speech.audio.delta", audio=b64encode(part).decode())

    def done(self, result: SpeechResult, audio_s: float) -> bytes:
        """Return the last event of a speech that succeeded; see `BodyFormat.done`."""
        return self.event(
            "speech.audio.done",
            usage=Usage.of(result),
            response_id=result.job_id,
            finish_reason=result.finish_reason,
            seed=result.seed,
            codes_sha256=result.codes_sha256,
            audio_s=round(audio_s, 6),
            timings=result.timings,
            warnings=warnings_for(self._text, result),
            left_out=result.left_out,
            utterances=result.utterances,
        )

    def failed(self, error: SpeechError) -> bytes:
        """Return the last event of a speech that failed."""
        return self.event("speech.audio.error", error=speech_error_detail(error))


class WholeCodes(BodyFormat):
    """The codes of a whole speech, as JSON or as tensors, without its file."""

    def __init__(self, info: ModelInfo, *, tensors: bool) -> None:
        super().__init__(SAFETENSORS if tensors else _JSON)
        self._info = info

    def whole(self, file: bytes, result: SpeechResult, audio_s: float) -> bytes:  # noqa: ARG002
        """Return the codes; see `codes_body` and `BodyFormat.whole`."""
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
        """Return an event for each utterance with codes, and the last; see `BodyFormat.whole`."""
        every = (UtteranceCodes(number, one.codes) for number, one in enumerate(result.utterances))
        deltas = b"".join(self._delta(one) for one in every if len(one.codes))
        return deltas + self.done(result, audio_s)

    def _delta(self, piece: UtteranceCodes) -> bytes:
        codes = piece.codes.tolist()
        return self.event("speech.codes.delta", utterance=piece.utterance, codes=codes)


def body_format_of(wanted: SpeechRequest, accept: str, info: ModelInfo) -> BodyFormat:
    """Return the shape that a request and its header `Accept` ask for.

    Raises InvalidRequest if it asks for a stream of tensors.
    """
    if wanted.response_format != "codes":
        if wanted.stream_format == "sse":
            return Events(wanted.input, wanted.speed)
        return BodyFormat(MEDIA_TYPES[wanted.response_format])
    tensors = SAFETENSORS in accept
    if not wanted.streamed:
        return WholeCodes(info, tensors=tensors)
    if tensors:
        raise InvalidRequest(
            "tensors are sent whole: do not stream, or accept JSON",
            param="stream" if wanted.stream else "stream_format",
        )
    return CodeEvents(wanted.input, wanted.speed, lines=wanted.stream_format == "audio")


def codes_body(
    media_type: str, notes: Mapping[str, str], codes: Sequence[Codes], fields: Mapping[str, Any]
) -> bytes:
    """Return codes ``[T, K]`` of each utterance as safetensors, `0`, `1` and so on, or as JSON.

    ``notes`` are metadata of the tensors, or stand in the JSON before ``fields`` with the codes.
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
