"""What can be asked for: voices and models. Nothing here blocks."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from app.api.answers import NOT_READY
from app.api.schemas import ModelItem, ModelList, VoiceItem, VoiceList
from app.engine.engine import SpeechEngine


def _engine(request: Request) -> SpeechEngine:
    engine: SpeechEngine = request.app.state.engine
    return engine


EngineDep = Annotated[SpeechEngine, Depends(_engine)]

list_router = APIRouter(tags=["speech"])


@list_router.get("/v1/audio/voices", responses=NOT_READY)
async def voices(request: Request, engine: EngineDep) -> VoiceList:
    """List the voices: the model's, and those that were uploaded for everybody or with this key."""
    owner: str = getattr(request.state, "owner", "")
    heard = await asyncio.to_thread(engine.voices.of, owner)
    items = [
        VoiceItem(
            id=voice.name,
            name=voice.title or voice.name,
            language=voice.language,
            description=voice.description,
        )
        for voice in heard
    ]
    return VoiceList(voices=items)


@list_router.get("/v1/models", responses=NOT_READY)
async def models(engine: EngineDep) -> ModelList:
    """List the models: the one that is loaded."""
    return ModelList(data=[ModelItem(id=engine.info.name)])
