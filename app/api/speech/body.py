"""The body of a speech request, read strictly."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.api.errors import problems_of
from app.api.gate.bodies import media_type
from app.api.gate.shape import check_shape
from app.api.nulls import without_nulls
from app.api.schemas import SpeechRequest


def speech_body(kind: type[SpeechRequest]) -> Callable[[Request], Awaitable[SpeechRequest]]:
    """Return the dependency of a route that takes a speech request of some kind."""

    async def read(request: Request) -> SpeechRequest:
        """Read the body strictly: JSON knows numbers from text, so "0.5" is no number.

        Raises:
            HTTPException: It is not said to be JSON, or larger than `app.api.gate.bodies` lets
                through.
            InvalidRequest: It has too many fields or values.
            RequestValidationError: It is no valid request.
        """
        if media_type(request.headers) != "application/json":
            raise HTTPException(415, "send JSON, with the header content-type: application/json")
        try:
            body = await request.body()
            check_shape(body)
            sent = without_nulls(body, kind)
            return kind.model_validate_json(sent, strict=True)
        except ValidationError as error:
            raise RequestValidationError(problems_of(error)) from error

    return read


def speech_schema(kind: type[SpeechRequest]) -> dict[str, Any]:
    """Return what the OpenAPI document says of such a body."""
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    # What it refers to is among the components: the report of a speech has the same knobs.
    schema.pop("$defs", None)
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}
