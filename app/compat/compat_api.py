"""What the application needs to know of the API of another service."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from fastapi import APIRouter
from pydantic import BaseModel

from app.api.models import ModelListing
from app.api.services import Services


@asynccontextmanager
async def _nothing(_: Services) -> AsyncIterator[None]:
    yield


@dataclass(frozen=True, kw_only=True)
class CompatApi:
    """The API of another service, as `app.main.create_app` adds it."""

    routers: Sequence[APIRouter] = ()  # of HTTP
    # Of WebSockets, which are tried before all other routes: one may take a path of `app.api`.
    socket_routers: Sequence[APIRouter] = ()
    bodies: Sequence[type[BaseModel]] = ()  # of JSON, read by `app.api.requests.json_body`
    open_paths: frozenset[str] = frozenset()  # need no key
    uploads: frozenset[tuple[str, str]] = frozenset()  # method and path of those with recordings
    key_headers: Sequence[str] = ()  # in which its clients send a key
    model_listings: Sequence[ModelListing] = ()  # its forms of `GET /v1/models`
    # A context that is entered before the engine starts and left before it stops.
    background: Callable[[Services], AbstractAsyncContextManager[None]] = _nothing
