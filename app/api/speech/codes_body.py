"""Codes as the body of a response: JSON or tensors of a whole speech, events while it is drawn."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from pydantic import BaseModel, Field
from pydantic_core import to_json
from safetensors.numpy import save

from app.api.responses import SAFETENSORS
from app.api.schemas import SpeechRequest
from app.api.speech.events import Events
from app.api.speech.framing import Framing
from app.engine.errors import InvalidRequest
from app.engine.interface import ModelInfo
from app.engine.job import AudioChunk, Codes, SpeechResult, UtteranceCodes

_JSON: Final = "application/json"


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
        told = {"model_sha256": self._info.sha256, "codes_sha256": result.codes_sha256}
        fields = {"utterances": [one.tolist() for one in codes]}
        return codes_body(self.media_type, told | rates_of(self._info), codes, fields)


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


def codes_framing(wanted: SpeechRequest, accept: str, info: ModelInfo) -> Framing:
    """Return the shape of a response with codes.

    Args:
        wanted: Asks for codes.
        accept: The header of the request.
        info: Of the loaded model.

    Raises:
        InvalidRequest: It asks for what codes do not have.
    """
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
    media_type: str, told: Mapping[str, str], codes: Sequence[Codes], fields: Mapping[str, Any]
) -> bytes:
    """Return codes as safetensors, `0`, `1` and so on, or as JSON.

    Args:
        media_type: Of either.
        told: What there is to know about them: metadata of the tensors, fields of the JSON.
        codes: ``[T, K]`` of each utterance.
        fields: The fields of the JSON with the codes.
    """
    if media_type == SAFETENSORS:
        tensors = {str(number): np.ascontiguousarray(one) for number, one in enumerate(codes)}
        return save(tensors, dict(told))
    return to_json({**told, **fields})


def rates_of(info: ModelInfo) -> dict[str, str]:
    """Return the rates of codes and sound, as text, as safetensors have it."""
    return {
        "frame_rate_hz": f"{info.frame_rate_hz:g}",
        "sample_rate_hz": str(info.sample_rate_hz),
    }
