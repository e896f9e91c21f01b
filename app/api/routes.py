"""What can be asked for and how the service is: voices, models, health. Nothing here blocks."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from app.api.answers import NOT_READY, error_answers
from app.api.schemas import Health, ModelItem, ModelList, Ready, VoiceItem, VoiceList
from app.engine.engine import SpeechEngine


def _engine(request: Request) -> SpeechEngine:
    engine: SpeechEngine = request.app.state.engine
    return engine


EngineDep = Annotated[SpeechEngine, Depends(_engine)]

list_router = APIRouter(tags=["speech"])
health_router = APIRouter(tags=["health"])


@list_router.get("/v1/audio/voices", responses=NOT_READY)
async def voices(engine: EngineDep) -> VoiceList:
    """List the voices."""
    items = [
        VoiceItem(
            id=voice.name,
            name=voice.title or voice.name,
            language=voice.language,
            description=voice.description,
        )
        for voice in engine.voices
    ]
    return VoiceList(voices=items)


@list_router.get("/v1/models", responses=NOT_READY)
async def models(engine: EngineDep) -> ModelList:
    """List the models: the one that is loaded."""
    return ModelList(data=[ModelItem(id=engine.info.name)])


@health_router.head("/health", include_in_schema=False)
@health_router.get("/health", responses=error_answers(_503="Restart me; the message says why."))
async def health(engine: EngineDep) -> Health:
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
    )


@health_router.head("/ready", include_in_schema=False)
@health_router.get("/ready", responses=NOT_READY)
async def ready(engine: EngineDep) -> Ready:
    """Tell whether requests are taken; 503 with what it waits for."""
    engine.check_ready()
    return Ready(model=engine.info.name)
