"""`null` in a request body means the field's default, as many clients send it for unset fields."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json, to_json


def without_nulls(raw: bytes | str, kinds: Mapping[str, type[BaseModel]] | type[BaseModel]) -> Any:
    """Return JSON without the fields that are null and have a default.

    This is not a validator of the model: a "before" validator would turn JSON into Python objects,
    and pydantic's strict mode takes a JSON list for a tuple but not a Python list.

    Args:
        raw: The body; returned unchanged if it is not JSON.
        kinds: The model it will be validated as, or models by the value of `type`.
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
