"""Routes that list the loaded model under its names, and describe it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union

from fastapi import APIRouter, HTTPException, Path, Request
from pydantic import BaseModel

from app.api.requests import model_item, model_items, model_names
from app.api.schemas import (
    NOT_READY,
    AudioModelItem,
    AudioModelList,
    ModelItem,
    ModelList,
    error_responses,
)
from app.api.services import Services, ServicesDep

ModelName = Annotated[str, Path(alias="id", description="A model's id.")]


@dataclass(frozen=True)
class ModelListing:
    """Another form of the list of models, for requests with a header."""

    header: str
    item: type[BaseModel]
    describe: Callable[[str, Services], BaseModel]  # a model by one of its names


def models_router(listings: Sequence[ModelListing] = ()) -> APIRouter:
    """Return the routes; the list of models is in a further form for those who ask for it."""
    router = APIRouter(tags=["speech"])
    forms: Any = Union[ModelList, *(list[listing.item] for listing in listings)]  # type: ignore[name-defined]

    @router.get("/v1/models", response_model=forms, responses=NOT_READY)
    async def list_models(request: Request, services: ServicesDep) -> ModelList | list[BaseModel]:
        """List the loaded model under its own name, OpenAI's and the operator's.

        With the header of another service it is that service's list: of the model's own name and
        the operator's.
        """
        loaded, names = _model(services)
        for listing in listings:
            if listing.header in request.headers:
                own = dict.fromkeys((loaded, *names))
                return [listing.describe(name, services) for name in own]
        return ModelList(data=model_items(loaded, names))

    router.include_router(_router)
    return router


_router = APIRouter()


@_router.get("/v1/audio/models", responses=NOT_READY)
async def list_audio_models(services: ServicesDep) -> AudioModelList:
    """List the same in the form that Open WebUI expects."""
    return AudioModelList(
        models=[AudioModelItem(id=item.id) for item in model_items(*_model(services))]
    )


@_router.get("/v1/models/{id:path}", responses=NOT_READY | error_responses(_404="No such model."))
async def get_model(name: ModelName, services: ServicesDep) -> ModelItem:
    """Describe a model."""
    if not name:  # the slash behind the path of the list
        raise HTTPException(404, "Not Found")
    return model_item(name, *_model(services))


def _model(services: Services) -> tuple[str, list[str]]:
    """Return the name of the loaded model, and the operator's further names of it."""
    return services.engine.info.name, model_names(services.settings)
