"""Golden requests: their codes are stored with the model, so that each machine can compare its own.

`golden.json` in a model's folder has requests and the SHA-256 of the codes that they give with
weights of int8 on a CPU; ``python -m scripts.gen_golden`` writes it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from app.engine.interface import GoldenResult, Plan
from app.engine.job import AudioChunk, SpeechJob
from samplers.knobs.params import SamplingParams

GOLDEN_FILE: Final = "golden.json"


class GoldenError(ValueError):
    """The file of golden requests is damaged; the message names it."""


class GoldenRequest(BaseModel):
    """A request and the codes that it gives.

    Attributes:
        text: What is said.
        voice: Of the model; None is its default.
        params: Knobs, the seed among them.
        codes_sha256: Of all codes ``[T, K]`` in order, as little-endian int16.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    voice: str | None = None
    params: dict[str, Any]
    codes_sha256: str = ""


class Speaks(Protocol):
    """What is needed of a loaded model; `app.engine.backend.synthesizer.Synthesizer` is one."""

    def plan(self, job: SpeechJob) -> Plan:
        """Settle how a job is spoken."""

    def speak(self, plan: Plan, *, queue_s: float, on_progress: Any) -> Iterator[AudioChunk]:
        """Yield the sound of one job, the last chunk with the result."""


def read_golden(folder: Path) -> Sequence[GoldenRequest]:
    """Return the golden requests of a model's folder; none where it has no such file.

    Raises:
        GoldenError: The file is not valid.
    """
    path = folder / GOLDEN_FILE
    if not path.exists():
        return ()
    try:
        return TypeAdapter(tuple[GoldenRequest, ...]).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise GoldenError(f"{path}: {error}") from error


def codes_sha256(speaks: Speaks, request: GoldenRequest) -> str:
    """Speak a request by itself and return the SHA-256 of its codes.

    Raises:
        SpeechError: It cannot be spoken.
    """
    job = SpeechJob("golden", request.text, SamplingParams(**request.params), request.voice)
    *_, last = speaks.speak(speaks.plan(job), queue_s=0.0, on_progress=lambda _: True)
    assert last.result is not None  # the last chunk has the result
    return last.result.codes_sha256


def compare(speaks: Speaks, requests: Sequence[GoldenRequest]) -> GoldenResult:
    """Speak requests and compare their codes with those stored.

    Raises:
        SpeechError: One cannot be spoken.
    """
    different = sum(codes_sha256(speaks, one) != one.codes_sha256 for one in requests)
    return GoldenResult(len(requests), different)
