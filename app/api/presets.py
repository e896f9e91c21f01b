"""The route that lists the presets."""

import asyncio

from fastapi import APIRouter

from app.api.schemas import (
    NOT_READY,
    PresetItem,
    PresetList,
)
from app.api.services import EngineDep
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import AUTO

presets_router = APIRouter(tags=["speech"])


@presets_router.get("/v1/presets", responses=NOT_READY)
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
