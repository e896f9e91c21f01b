"""What can be asked for: voices and models. Nothing here blocks."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from app.api.answers import NOT_READY, error_answers
from app.api.model_names import model_item, model_items
from app.api.schemas import (
    AudioModelItem,
    AudioModelList,
    ModelItem,
    ModelList,
    VoiceItem,
    VoiceList,
)
from app.engine.engine import SpeechEngine


def _engine(request: Request) -> SpeechEngine:
    engine: SpeechEngine = request.app.state.engine
    return engine


EngineDep = Annotated[SpeechEngine, Depends(_engine)]
ModelName = Annotated[str, Path(alias="id", description="A model's id.")]

list_router = APIRouter(tags=["speech"])


@list_router.get("/v1/audio/voices", responses=NOT_READY)
async def list_voices(request: Request, engine: EngineDep) -> VoiceList:
    """List the voices: built-in, uploaded for everybody or with this key; and OpenAI's names."""
    owner: str = getattr(request.state, "owner", "")
    heard = {voice.name: voice for voice in await asyncio.to_thread(engine.voices.of, owner)}
    named = heard | engine.voices.aliases
    damaged = await asyncio.to_thread(engine.voices.damaged, owner)
    items = [
        VoiceItem(
            id=name,
            name=(voice.title or voice.name) if name == voice.name else name,
            language=voice.language,
            description=voice.description,
            alias_of=None if name == voice.name else voice.name,
            damaged=False,
        )
        for name, voice in named.items()
    ]
    return VoiceList(voices=[*items, *map(_damaged, damaged)])


def _damaged(name: str) -> VoiceItem:
    """Describe an upload of which nothing can be read."""
    return VoiceItem(
        id=name,
        name=name,
        language="",
        description="Nothing can be read of it; delete it and upload it again.",
        alias_of=None,
        damaged=True,
    )


@list_router.get("/v1/models", responses=NOT_READY)
async def list_models(engine: EngineDep) -> ModelList:
    """List the models: the one that is loaded, and OpenAI's names for it."""
    return ModelList(data=model_items(engine.info.name))


@list_router.get("/v1/audio/models", responses=NOT_READY)
async def list_audio_models(engine: EngineDep) -> AudioModelList:
    """List the same, as Open WebUI asks for them."""
    return AudioModelList(
        models=[AudioModelItem(id=item.id) for item in model_items(engine.info.name)]
    )


@list_router.get("/v1/models/{id:path}", responses=NOT_READY | error_answers(_404="No such model."))
async def get_model(name: ModelName, engine: EngineDep) -> ModelItem:
    """Describe a model."""
    return model_item(name, engine.info.name)
