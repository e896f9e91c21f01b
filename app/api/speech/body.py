"""The body of a speech request, validated strictly."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.api.errors import problems_of
from app.api.gate.body_limits import media_type
from app.api.gate.json_limits import check_json_size
from app.api.nulls import without_nulls
from app.api.schemas import SpeechRequest


def speech_body(kind: type[SpeechRequest]) -> Callable[[Request], Awaitable[SpeechRequest]]:
    """Return the FastAPI dependency that reads a speech request."""

    async def read(request: Request) -> SpeechRequest:
        """Validate the body in strict mode: the string "0.5" is not a number.

        Raises:
            HTTPException: The media type is not JSON, or `app.api.gate.body_limits` refuses the
                body.
            InvalidRequest: It has too many fields or values.
            RequestValidationError: A field is invalid.
        """
        if media_type(request.headers) != "application/json":
            raise HTTPException(415, "send JSON, with the header content-type: application/json")
        try:
            body = await request.body()
            check_json_size(body)
            cleaned = without_nulls(body, kind)
            return kind.model_validate_json(cleaned, strict=True)
        except ValidationError as error:
            raise RequestValidationError(problems_of(error)) from error

    return read


def speech_schema(kind: type[SpeechRequest]) -> dict[str, Any]:
    """Return the OpenAPI entry of a speech request's body."""
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    # Referenced schemas are components already: a speech report has the same knobs.
    schema.pop("$defs", None)
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}
