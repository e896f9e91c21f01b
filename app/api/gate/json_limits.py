"""Limit on the number of values in a JSON body, checked before the costlier validation."""

from typing import Final

from pydantic_core import from_json

from app.engine.errors import InvalidRequest

MAX_FIELDS: Final = 256
MAX_VALUES: Final = 8192
"""More than the longest valid request has in all its lists."""

_SMALL_BYTES: Final = 2 * MAX_FIELDS  # too short to exceed either limit


def check_json_size(raw: bytes | str) -> None:
    """Check the number of fields and values in JSON; anything that is not JSON passes.

    pydantic reports errors value by value in a single call, which for 100,000 values would block
    the event loop for a second.

    Raises:
        InvalidRequest: There are too many.
    """
    if len(raw) <= _SMALL_BYTES:
        return
    try:
        sent = from_json(raw)
    except ValueError:
        return
    if isinstance(sent, dict) and len(sent) > MAX_FIELDS:
        raise InvalidRequest(f"the body has {len(sent)} fields, the limit is {MAX_FIELDS}")
    values, inner = 0, [sent]
    while inner and values <= MAX_VALUES:
        one = inner.pop()
        values += len(one) if isinstance(one, dict | list) else 0
        if isinstance(one, dict):
            one = list(one.values())
        if isinstance(one, list):
            inner += [value for value in one[:MAX_VALUES] if isinstance(value, dict | list)]
    if values > MAX_VALUES:
        raise InvalidRequest(f"the body has more than {MAX_VALUES} values in its lists and objects")
