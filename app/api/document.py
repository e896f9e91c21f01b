"""The OpenAPI document: names of operations for clients made from it, and exact numbers.

FastAPI passes every bound through a float.

A float cannot hold the greatest seed, 2^63 - 1, and clients that are made from the document read
`0.0` as a bound of an integer.
"""

import asyncio
import json
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute

from app.api.speech.route import speech_router
from samplers.knobs.params import SamplingParams

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def operation_id(route: APIRoute) -> str:
    """Return what a client that is made from the document calls an operation.

    It is the function's name, which is unique and stays (`tests/app/api/test_document.py`), while
    FastAPI's would also have the path and the method in it.
    """
    return route.name


class Service(FastAPI):
    """An application that describes itself exactly."""

    _json: bytes | None = None

    def setup(self) -> None:
        """Add the routes of the document and its pages; the document's own is made in a thread."""
        if self.openapi_url:
            self.add_route(self.openapi_url, self._document, include_in_schema=False)
        super().setup()

    async def _document(self, _: Request) -> Response:
        """Give the document: it takes a tenth of a second to make, so not on the event loop."""
        if self._json is None:
            self._json = await asyncio.to_thread(lambda: json.dumps(self.openapi()).encode())
        return Response(self._json, media_type="application/json")

    def openapi(self) -> dict[str, Any]:
        """Return the document, made at the first call."""
        if self.openapi_schema is None:
            shown = _with(super().openapi(), _sources())
            self.openapi_schema = _whole(shown)
        return self.openapi_schema


def _sources() -> dict[str, Any]:
    """Return what FastAPI was given for the parts that have bounds beyond a float."""
    paths = {
        route.path: {method.lower(): route.openapi_extra for method in route.methods or ()}
        for route in speech_router.routes
        if isinstance(route, APIRoute) and route.openapi_extra
    }
    schemas = {"SamplingParams": SamplingParams.model_json_schema()}
    return {"paths": paths, "components": {"schemas": schemas}}


def _with(shown: Any, source: Any) -> Any:
    """Return a part of the document with the integers of what it was made from."""
    if isinstance(shown, dict) and isinstance(source, dict):
        return {name: _with(inner, source.get(name)) for name, inner in shown.items()}
    if isinstance(shown, list) and isinstance(source, list) and len(shown) == len(source):
        return [_with(*pair) for pair in zip(shown, source, strict=True)]
    return source if isinstance(shown, float) and isinstance(source, int) else shown


def _whole(shown: Any) -> Any:
    """Return a part of the document in which a bound of an integer is an integer."""
    if isinstance(shown, list):
        return [_whole(inner) for inner in shown]
    if not isinstance(shown, dict):
        return shown
    parts = {name: _whole(inner) for name, inner in shown.items()}
    if shown.get("type") == "integer":
        for name in _BOUNDS:
            if isinstance(bound := parts.get(name), float) and bound.is_integer():
                parts[name] = int(bound)
    return parts
