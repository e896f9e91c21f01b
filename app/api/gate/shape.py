"""How many values a request may hold: counted before it is read, which costs far more each."""

from typing import Final

from pydantic_core import from_json

from app.engine.errors import InvalidRequest

MAX_FIELDS: Final = 256
MAX_VALUES: Final = 8192
"""More than all lists of a request are long together, at their longest."""

_SMALL_BYTES: Final = 2 * MAX_FIELDS  # cannot hold so many fields, and far fewer values


def check_shape(raw: bytes | str) -> None:
    """Refuse JSON with too many fields or values; what is no JSON is left for others to refuse.

    What is wrong with a request is told in one call of a library, value by value: of some 100,000
    it would hold the event loop for a second.

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
        raise InvalidRequest(f"it has {len(sent)} fields, at most {MAX_FIELDS} may be sent")
    values, inner = 0, [sent]
    while inner and values <= MAX_VALUES:
        one = inner.pop()
        values += len(one) if isinstance(one, dict | list) else 0
        if isinstance(one, dict):
            one = list(one.values())
        if isinstance(one, list):
            inner += [value for value in one[:MAX_VALUES] if isinstance(value, dict | list)]
    if values > MAX_VALUES:
        raise InvalidRequest(f"it has more than {MAX_VALUES} values in its lists and objects")
