"""Routes that list voices and models. They never block."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Request

from app.api.requests import EngineDep, model_item, model_items
from app.api.responses import NOT_READY, error_responses
from app.api.schemas import (
    AudioModelItem,
    AudioModelList,
    ModelItem,
    ModelList,
    VoiceItem,
    VoiceList,
)

ModelName = Annotated[str, Path(alias="id", description="A model's id.")]

list_router = APIRouter(tags=["speech"])


@list_router.get("/v1/audio/voices", responses=NOT_READY)
async def list_voices(request: Request, engine: EngineDep) -> VoiceList:
    """List the voices: built-in, uploaded for everybody or with this key, and OpenAI's names."""
    owner: str = getattr(request.state, "owner", "")
    voices = {voice.name: voice for voice in await asyncio.to_thread(engine.voices.of, owner)}
    named = voices | engine.voices.aliases
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
    """Return the description of an upload that cannot be read."""
    return VoiceItem(
        id=name,
        name=name,
        language="",
        description="Damaged; delete it and upload it again.",
        alias_of=None,
        damaged=True,
    )


@list_router.get("/v1/models", responses=NOT_READY)
async def list_models(engine: EngineDep) -> ModelList:
    """List the loaded model under its own name and OpenAI's."""
    return ModelList(data=model_items(engine.info.name))


@list_router.get("/v1/audio/models", responses=NOT_READY)
async def list_audio_models(engine: EngineDep) -> AudioModelList:
    """List the same in the form that Open WebUI expects."""
    return AudioModelList(
        models=[AudioModelItem(id=item.id) for item in model_items(engine.info.name)]
    )


@list_router.get(
    "/v1/models/{id:path}", responses=NOT_READY | error_responses(_404="No such model.")
)
async def get_model(name: ModelName, engine: EngineDep) -> ModelItem:
    """Describe a model."""
    return model_item(name, engine.info.name)
