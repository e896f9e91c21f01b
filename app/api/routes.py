"""Routes that list models and presets. They never block."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path

from app.api.requests import EngineDep, SettingsDep, model_item, model_items, model_names
from app.api.responses import NOT_READY, error_responses
from app.api.schemas import (
    AudioModelItem,
    AudioModelList,
    ModelItem,
    ModelList,
    PresetItem,
    PresetList,
)
from app.engine.engine import SpeechEngine
from app.settings import Settings
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import AUTO

ModelName = Annotated[str, Path(alias="id", description="A model's id.")]

list_router = APIRouter(tags=["speech"])


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
