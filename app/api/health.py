"""The probes `/health` and `/ready`; they never block."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.api.schemas import NOT_READY, error_responses
from app.api.services import ServicesDep
from app.engine.interface import GoldenResult
from app.version import VERSION


class Health(BaseModel):
    """State of the engine."""

    status: Literal["ok"] = "ok"
    version: str = Field(
        VERSION, description="Of the service: its release, and the commit if it is behind one."
    )
    state: str = Field(description="loading, warming, ready, draining or stopped.")
    model: str | None = Field(description="The loaded model's name.")
    device: str | None = Field(description="Device that it runs on.")
    weights: str | None = Field(description="Type of its weights: int8 or float32.")
    decoder: str | None = Field(description="Decoder of codes to audio: codec or vocos.")
    queued: int = Field(description="Requests in the queue.")
    running: int = Field(description="Requests in progress.")
    slots: int = Field(description="Rows of the decoding batch.")
    used_slots: int = Field(description="Rows in use.")
    deterministic: bool | None = Field(
        description="Whether a request had the same codes in a batch as alone, as tested when the"
        " model was loaded; null before."
    )
    streams: int | None = Field(
        description="Number of concurrent streams that this machine sustains in real time, as"
        " measured at the start and since; further requests wait. Null before."
    )
    first_audio_s: float | None = Field(
        description="About how many seconds the first audio of a request sent now takes, by the"
        " number of requests before it; null while none is accepted."
    )
    golden: str | None = Field(
        description="Golden requests with the same codes as stored with the model, as in 20/20;"
        " null if TTS_CHECK_GOLDEN is off or the model has none."
    )
    batching: str | None = Field(
        description="How rows of level 0 are computed on a CPU so that their results do not depend"
        " on the batch: in integers, padded to 4 rows, ..., row by row; empty on a GPU."
    )
    kernels: str | None = Field(
        description="Which kernels are the service's own on a GPU, and why others are not, as tried"
        " at the start; empty on a CPU."
    )
    unrecorded: list[str] | None = Field(
        description="Why some functions could not be recorded on a GPU, one entry each: steps or"
        " chunks of their sizes are slower. More than two fail the start."
    )
    shared_state: str = Field(
        description="Where limits and recent responses are kept: memory; redis; or redis away,"
        " limits open (or closed)."
    )
    heartbeat_age_s: float = Field(description="Seconds since the engine last made progress.")
    heartbeats_s: dict[str, float] = Field(
        description="Seconds since each part of it did: level_0, sound, text and recordings; 0"
        " where a part has nothing to do. A process that is silent for 10 s is replaced."
    )


class Ready(BaseModel):
    """The service accepts requests."""

    status: Literal["ready"] = "ready"
    model: str
    model_sha256: str = Field(description="Hash of the model's weights.")
    word_times: bool = Field(description="Whether the model can tell when words are heard.")


health_router = APIRouter(tags=["health"])


@health_router.head("/health", include_in_schema=False)
@health_router.get(
    "/health",
    responses=error_responses(_503="The process must be restarted; the message says why."),
)
async def get_health(services: ServicesDep) -> Health:
    """Return the engine's state; 503 if the process must be restarted."""
    engine = services.engine
    engine.check_healthy()
    shared = services.shared
    status = engine.status
    info = engine.info if status.state == "ready" else None
    return Health(
        state=status.state,
        model=info.name if info else None,
        device=info.device if info else None,
        weights=info.weights if info else None,
        decoder=info.decoder if info else None,
        queued=status.queued,
        running=status.running,
        slots=status.slots,
        used_slots=status.used_slots,
        deterministic=status.deterministic,
        batching=info.batching if info else None,
        kernels=info.kernels if info else None,
        unrecorded=list(info.unrecorded) if info else None,
        streams=status.streams,
        first_audio_s=round(engine.first_audio_s(), 3) if info else None,
        golden=_golden_summary(status.golden),
        shared_state=shared.summary if shared else "memory",
        heartbeat_age_s=round(status.beat_age_s, 3),
        heartbeats_s={part: round(age_s, 3) for part, age_s in status.beats_s.items()},
    )


def _golden_summary(golden: GoldenResult | None) -> str | None:
    """Return the share of golden requests with the stored codes, as in 20/20."""
    return f"{golden.spoken - golden.different}/{golden.spoken}" if golden else None


@health_router.head("/ready", include_in_schema=False)
@health_router.get("/ready", responses=NOT_READY)
async def get_ready(services: ServicesDep) -> Ready:
    """Return 200 if requests are accepted, else 503 with the reason."""
    services.admission.check_open()
    engine = services.engine
    engine.lifecycle.check_ready()
    info = engine.info
    return Ready(model=info.name, model_sha256=info.sha256, word_times=info.aligns)
