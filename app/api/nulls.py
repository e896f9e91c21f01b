"""`null` in a request is the default: clients write it for what they do not set."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json, to_json


def without_nulls(raw: bytes | str, kinds: Mapping[str, type[BaseModel]] | type[BaseModel]) -> Any:
    """Return JSON in which no field with a default is null.

    Not a validator of the model: one that comes before its fields makes Python of the JSON, and
    strictly read, a list of Python is no tuple, while a list of JSON is.

    Args:
        raw: What was sent; what is no JSON is returned as it is.
        kinds: What it will be read as, or that by the value of `type`.
    """
    if "null" not in raw if isinstance(raw, str) else b"null" not in raw:
        return raw
    try:
        sent = from_json(raw)
    except ValueError:
        return raw
    if not isinstance(sent, dict):
        return raw
    kind = kinds.get(str(sent.get("type"))) if isinstance(kinds, Mapping) else kinds
    if kind is None:
        return raw
    fields = kind.model_fields
    kept = {
        name: value
        for name, value in sent.items()
        if value is not None or name not in fields or fields[name].is_required()
    }
    return raw if len(kept) == len(sent) else to_json(kept, inf_nan_mode="constants")
