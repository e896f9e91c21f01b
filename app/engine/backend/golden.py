"""Golden requests: requests whose codes are stored with the model, for comparison on any machine.

`golden.json` in a model's folder has requests and the SHA-256 of the codes that they give with int8
weights on a CPU; ``python -m scripts.gen_golden`` writes it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from app.engine.core import SpeechJob, SpeechResult
from app.engine.interface import GoldenResult
from models.checkpoints.files import CheckpointError
from samplers.knobs.params import SamplingParams

GOLDEN_FILE: Final = "golden.json"

SpeakJob = Callable[[SpeechJob], SpeechResult]
"""Speaks a job by itself."""


class GoldenRequest(BaseModel):
    """A request and the SHA-256 of its codes ``[T, K]`` in order, as little-endian int16."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    voice: str | None = None
    params: dict[str, Any]
    codes_sha256: str = ""


def read_golden(folder: Path) -> Sequence[GoldenRequest]:
    """Return the golden requests of a model's folder; none where it has no such file.

    Raises CheckpointError if the file is not valid.
    """
    path = folder / GOLDEN_FILE
    if not path.exists():
        return ()
    try:
        return TypeAdapter(tuple[GoldenRequest, ...]).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def codes_sha256(speak: SpeakJob, request: GoldenRequest) -> str:
    """Speak a request by itself and return the SHA-256 of its codes."""
    job = SpeechJob("golden", request.text, SamplingParams(**request.params), request.voice)
    return speak(job).codes_sha256


def compare(speak: SpeakJob, requests: Sequence[GoldenRequest]) -> GoldenResult:
    """Speak requests and compare their codes with those stored."""
    different = sum(codes_sha256(speak, one) != one.codes_sha256 for one in requests)
    return GoldenResult(len(requests), different)
