"""The OpenAPI document, with stable operation ids and exact integer bounds.

FastAPI converts every bound to a float, which cannot hold the greatest seed, 2^63 - 1, and shows
the bound 0 of an integer as `0.0` to client generators.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from starlette.routing import BaseRoute

from app.api.paths import every_route
from app.api.schemas import SpeechRequest, error_responses
from app.api.services import Services
from app.studio.files import PageFile
from samplers.knobs.params import SamplingParams

GATE_RESPONSES = error_responses(
    _400="The head declares two lengths of the body.",
    _401="No API key, or an unknown one.",
    _403="The origin or the host name is not allowed.",
    _408="The body was sent too slowly.",
    _422="A header is invalid; `param` names it.",
    _429="Too many requests, in total or at once; retry in Retry-After seconds.",
    _431="The request line and headers are too large.",
)
"""Responses of the middleware, for every route but the probes."""

BEARER_KEY = Security(
    HTTPBearer(auto_error=False, description="API key, if the service requires one.")
)
"""Documents the key in OpenAPI; the middleware has checked it already."""

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def operation_id(route: APIRoute) -> str:
    """Return the name of a route's function: a stable operation id, without path and method."""
    return route.name


class Service(FastAPI):
    """A FastAPI application with an exact OpenAPI document, which is built in a thread.

    ``bodies`` are those of JSON that `app.api.requests.json_body` reads.
    """

    _json: PageFile | None = None
    _made: dict[str, Any] | None = None
    _limits: Mapping[str, Mapping[str, Any]] | None = None  # of the loaded model, once there is one

    def __init__(self, *, bodies: Sequence[type[BaseModel]], **options: Any) -> None:
        self._bodies: Sequence[type[BaseModel]] = (SpeechRequest, *bodies)
        super().__init__(**options)

    def setup(self) -> None:
        """Add the documentation routes."""
        if self.openapi_url:
            self.add_route(self.openapi_url, self._document, include_in_schema=False)
        super().setup()

    async def _document(self, request: Request) -> Response:
        """Return the document as JSON. Building it takes 0.1 s, too long for the event loop."""
        made = self._made
        shown = await asyncio.to_thread(self.openapi)
        if self._json is None or shown is not made:
            content = await asyncio.to_thread(lambda: json.dumps(shown).encode())
            self._json = PageFile.of(content, "application/json")
        return self._json.answer(request)

    def openapi(self) -> dict[str, Any]:
        """Return the document, built at the first call, and again once the model is loaded.

        A loaded model takes fewer values of some fields, which the document then says.
        """
        services: Services = self.state.services
        engine = services.engine
        loaded = engine.info.fields if engine.status.state == "ready" else None
        if self._made is None or (self._limits is None and loaded is not None):
            shown = super().openapi()
            for name, schema in _parts_of_bodies(self._bodies).items():
                shown["components"]["schemas"].setdefault(name, schema)
            shown = _with_integers(shown, _sources(every_route(self.routes)))
            self._made = _limited(_with_integer_bounds(shown), loaded or {})
            self._limits = loaded
        return self._made


def _limited(shown: dict[str, Any], fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Add what the loaded model says of fields to the bodies of all operations, and return them."""
    for methods in shown["paths"].values():
        for operation in methods.values():
            content = operation.get("requestBody", {}).get("content", {})
            body = content.get("application/json", {}).get("schema", {})
            for name, more in fields.items():
                if name in body.get("properties", {}):
                    field = body["properties"][name]
                    _add(field, more)
                    if field.get("default") not in more.get("enum", (field.get("default"),)):
                        body["required"] = sorted({*body.get("required", ()), name})
    return shown


def _add(schema: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add to the schema of a field, or to what it is where it is not null."""
    for one in schema.get("anyOf", [schema]):
        if one.get("type") != "null":
            for name, value in more.items():
                is_nested = isinstance(value, dict) and isinstance(one.get(name), dict)
                one[name] = one[name] | value if is_nested else value


def _parts_of_bodies(bodies: Sequence[type[BaseModel]]) -> dict[str, Any]:
    """Return the schemas that bodies refer to, by name: FastAPI does not see those bodies."""
    parts: dict[str, Any] = {}
    for kind in bodies:
        schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        parts |= schema.get("$defs", {})
    return parts


def _sources(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """Return the schemas that were passed to FastAPI for parts with integers beyond a float."""
    paths = {
        route.path: {method.lower(): route.openapi_extra for method in route.methods or ()}
        for route in routes
        if isinstance(route, APIRoute) and _reads_json(route)
    }
    schemas = {kind.__name__: kind.model_json_schema() for kind in (SamplingParams, SpeechRequest)}
    return {"paths": paths, "components": {"schemas": schemas}}


def _reads_json(route: APIRoute) -> bool:
    """Return whether a route says itself that its body is JSON."""
    body = (route.openapi_extra or {}).get("requestBody", {})
    return "application/json" in body.get("content", {})


def _with_integers(shown: Any, source: Any) -> Any:
    """Return a part of the document with the exact integers of its source."""
    if isinstance(shown, dict) and isinstance(source, dict):
        return {name: _with_integers(inner, source.get(name)) for name, inner in shown.items()}
    if isinstance(shown, list) and isinstance(source, list) and len(shown) == len(source):
        return [_with_integers(*pair) for pair in zip(shown, source, strict=True)]
    return source if isinstance(shown, float) and isinstance(source, int) else shown


def _with_integer_bounds(shown: Any) -> Any:
    """Return a part of the document in which bounds of integers are integers."""
    if isinstance(shown, list):
        return [_with_integer_bounds(inner) for inner in shown]
    if not isinstance(shown, dict):
        return shown
    parts = {name: _with_integer_bounds(inner) for name, inner in shown.items()}
    if shown.get("type") == "integer":
        for name in _BOUNDS:
            if isinstance(bound := parts.get(name), float) and bound.is_integer():
                parts[name] = int(bound)
    return parts
