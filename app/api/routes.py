"""Routes that list voices, models and presets. They never block."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Request

from app.api.requests import EngineDep, SettingsDep, model_item, model_items, model_names
from app.api.responses import NOT_READY, error_responses
from app.api.schemas import (
    AudioModelItem,
    AudioModelList,
    ModelItem,
    ModelList,
    PresetItem,
    PresetList,
    VoiceItem,
    VoiceList,
)
from app.engine.engine import SpeechEngine
from app.settings import Settings
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import AUTO

ModelName = Annotated[str, Path(alias="id", description="A model's id.")]

list_router = APIRouter(tags=["speech"])


@list_router.get("/v1/audio/voices", responses=NOT_READY)
async def list_voices(request: Request, engine: EngineDep) -> VoiceList:
    """List the voices: built-in, uploaded for everybody or with this key, and OpenAI's names."""
    owner: str = getattr(request.state, "owner", "")
    named = await asyncio.to_thread(engine.voices.named, owner)
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
async def list_models(engine: EngineDep, settings: SettingsDep) -> ModelList:
    """List the loaded model under its own name, OpenAI's and the operator's."""
    return ModelList(data=model_items(*_model(engine, settings)))


@list_router.get("/v1/audio/models", responses=NOT_READY)
async def list_audio_models(engine: EngineDep, settings: SettingsDep) -> AudioModelList:
    """List the same in the form that Open WebUI expects."""
    return AudioModelList(
        models=[AudioModelItem(id=item.id) for item in model_items(*_model(engine, settings))]
    )


@list_router.get(
    "/v1/models/{id:path}", responses=NOT_READY | error_responses(_404="No such model.")
)
async def get_model(name: ModelName, engine: EngineDep, settings: SettingsDep) -> ModelItem:
    """Describe a model."""
    return model_item(name, *_model(engine, settings))


def _model(engine: SpeechEngine, settings: Settings) -> tuple[str, list[str]]:
    """Return the name of the loaded model, and the operator's further names of it."""
    return engine.info.name, model_names(settings)


@list_router.get("/v1/presets", responses=NOT_READY)
async def list_presets(engine: EngineDep) -> PresetList:
    """List the presets, each with every knob as the loaded model would use it."""
    presets = await asyncio.to_thread(lambda: engine.presets)
    return PresetList(presets=[_preset(name, knobs) for name, knobs in presets.items()])


def _preset(name: str, knobs: SamplingParams) -> PresetItem:
    meant = knobs.preset if knobs.preset != AUTO else None
    return PresetItem(
        id=name,
        alias_of=meant if name == AUTO else None,
        sets=knobs.model_dump(mode="json", exclude_defaults=True, exclude={"preset", "seed"}),
        knobs=knobs,
    )
