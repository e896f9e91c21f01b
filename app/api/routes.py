"""Routes that list models and presets, the probes `/health` and `/ready`, and `/metrics`.

They never block.
"""

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException, Path, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel, Field

from app.api.requests import model_item, model_items, model_names
from app.api.schemas import (
    NOT_READY,
    AudioModelItem,
    AudioModelList,
    ModelItem,
    ModelList,
    PresetItem,
    PresetList,
    error_responses,
)
from app.api.services import EngineDep, Services, ServicesDep
from app.engine.interface import GoldenResult
from app.version import VERSION
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import AUTO

ModelName = Annotated[str, Path(alias="id", description="A model's id.")]

list_router = APIRouter(tags=["speech"])


class TheirLanguage(BaseModel):
    """A language of a model, in ElevenLabs' shape."""

    language_id: str
    name: str


class ElevenLabsModel(BaseModel):
    """A model, in ElevenLabs' shape."""

    model_id: str = Field(description="What `model_id` takes.")
    name: str
    description: str = ""
    can_do_text_to_speech: bool = True
    can_do_voice_conversion: bool = False
    can_be_finetuned: bool = False
    can_use_style: bool = False
    can_use_speaker_boost: bool = False
    serves_pro_voices: bool = False
    requires_alpha_access: bool = False
    token_cost_factor: float = 0.0
    maximum_text_length_per_request: int
    languages: list[TheirLanguage]


@list_router.get("/v1/models", responses=NOT_READY)
async def list_models(request: Request, services: ServicesDep) -> ModelList | list[ElevenLabsModel]:
    """List the loaded model under its own name, OpenAI's and the operator's.

    With ElevenLabs' header `xi-api-key` it is their list: of its own name and the operator's.
    """
    if "xi-api-key" not in request.headers:
        return ModelList(data=model_items(*_model(services)))
    loaded, names = _model(services)
    languages = [TheirLanguage(language_id=one, name=one) for one in services.engine.info.languages]
    return [
        ElevenLabsModel(
            model_id=name,
            name=name,
            maximum_text_length_per_request=services.settings.max_text_chars,
            languages=languages,
        )
        for name in dict.fromkeys((loaded, *names))
    ]


@list_router.get("/v1/audio/models", responses=NOT_READY)
async def list_audio_models(services: ServicesDep) -> AudioModelList:
    """List the same in the form that Open WebUI expects."""
    return AudioModelList(
        models=[AudioModelItem(id=item.id) for item in model_items(*_model(services))]
    )


@list_router.get(
    "/v1/models/{id:path}", responses=NOT_READY | error_responses(_404="No such model.")
)
async def get_model(name: ModelName, services: ServicesDep) -> ModelItem:
    """Describe a model."""
    if not name:  # the slash behind the path of the list
        raise HTTPException(404, "Not Found")
    return model_item(name, *_model(services))


def _model(services: Services) -> tuple[str, list[str]]:
    """Return the name of the loaded model, and the operator's further names of it."""
    return services.engine.info.name, model_names(services.settings)


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
    engine.check_ready()
    info = engine.info
    return Ready(model=info.name, model_sha256=info.sha256, word_times=info.aligns)


metrics_router = APIRouter(tags=["health"])


@metrics_router.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}}
)
async def get_metrics(request: Request, services: ServicesDep) -> Response:
    """Return all metrics in Prometheus' text format or OpenMetrics."""
    services.http_metrics.voices.set(await asyncio.to_thread(services.voice_store.count))
    both = CollectorRegistry()
    both.register(services.engine.metrics.registry)
    both.register(services.http_metrics.registry)
    try:
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        content = encode(both)
    except (TypeError, ValueError):  # the Accept header names an unknown version
        encode, media_type = choose_encoder("")
        content = encode(both)
    return Response(content, media_type=media_type)
