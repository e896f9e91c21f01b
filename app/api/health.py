"""How the service is, for whoever restarts it or sends it requests. Nothing here blocks."""

from fastapi import APIRouter, Request

from app.api.answers import NOT_READY, error_answers
from app.api.routes import EngineDep
from app.api.schemas import Health, Ready
from app.engine.interface import GoldenResult

health_router = APIRouter(tags=["health"])


@health_router.head("/health", include_in_schema=False)
@health_router.get("/health", responses=error_answers(_503="Restart me; the message says why."))
async def get_health(engine: EngineDep) -> Health:
    """Tell whether the process is alive; 503 if a restart is the only help."""
    engine.check_healthy()
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
        streams=status.streams,
        first_audio_s=round(engine.first_audio_s(), 3) if info else None,
        golden=_told(status.golden),
        heartbeat_age_s=round(status.beat_age_s, 3),
    )


def _told(golden: GoldenResult | None) -> str | None:
    return f"{golden.spoken - golden.different}/{golden.spoken}" if golden else None


@health_router.head("/ready", include_in_schema=False)
@health_router.get("/ready", responses=NOT_READY)
async def get_ready(request: Request, engine: EngineDep) -> Ready:
    """Tell whether requests are taken; 503 with what it waits for."""
    request.app.state.admission.check_open()
    engine.check_ready()
    return Ready(model=engine.info.name)
