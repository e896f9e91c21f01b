"""What clients send that JSON or a schema would refuse although its meaning is certain.

That is a byte order mark before the body, a whole float where an integer is meant, and a number in
a string: PowerShell, Lua, forms and templates write these.
"""

import codecs
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import from_json, to_json

R = TypeVar("R")

_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_LONGEST_NUMBER: Final = 40  # characters
_NUMERIC: Final = frozenset({"int_type", "int_from_float", "float_type", "literal_error"})
_MOST_MENDED: Final = 256
_MOST_ROUNDS: Final = 16
_NOT_UTF8: Final = "the body must be UTF-8"


def utf8(body: bytes) -> bytes:
    """Return a body without its byte order mark.

    Raises RequestValidationError if it is in another encoding than UTF-8.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        body.decode()
        other = b"\0" in body[:4]  # JSON has no such byte, UTF-16 and UTF-32 have
    except UnicodeDecodeError:
        other = True
    if other:
        raise RequestValidationError([{"type": "json_invalid", "loc": (), "msg": _NOT_UTF8}])
    return body


def validated(validate: Callable[[bytes | str], R], raw: bytes | str) -> R:
    """Return what a strict validator of JSON makes of a text, numbers of which may be strings.

    The text is read again only where the validator refuses it: once, or once for each list of which
    it tells the first problem alone. Raises ValidationError.
    """
    for _ in range(_MOST_ROUNDS):
        try:
            return validate(raw)
        except ValidationError as error:
            mended = _with_numbers(raw, error)
            if mended is None:
                raise
            raw = mended
    return validate(raw)


def _with_numbers(raw: bytes | str, error: ValidationError) -> bytes | None:
    """Return JSON with numbers in the places at which some are missing; None if there are none."""
    if error.error_count() > _MOST_MENDED:
        return None
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    places = [one["loc"] for one in problems if one["type"] in _NUMERIC]
    if not places:
        return None
    root = [from_json(raw)]
    mended = [_mend(root, place) for place in places]
    return to_json(root[0], inf_nan_mode="constants") if any(mended) else None


def _mend(root: list[Any], place: tuple[int | str, ...]) -> bool:
    """Replace the value at a place by the number that it says; return whether it says one."""
    # A place has names of types, too, where a field may be of several. In a list the values behind
    # it are replaced as well: of some lists only the first problem is told.
    holder: Any = root
    key: int | str = 0
    for step in place:
        inner = holder[key]
        if (isinstance(inner, dict) and step in inner) or (
            isinstance(inner, list) and isinstance(step, int) and step < len(inner)
        ):
            holder = inner
            key = step
    number = _number(holder[key])
    if number is None:
        return False
    holder[key] = number
    if isinstance(holder, list) and isinstance(key, int):
        for behind in range(key + 1, len(holder)):
            other = _number(holder[behind])
            holder[behind] = holder[behind] if other is None else other
    return True


def _number(value: object) -> int | float | None:
    """Return the number that a value means and is not, as an integer if it is whole."""
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER and _NUMBER.fullmatch(value):
        read: int | float = int(value) if value.lstrip("-").isdecimal() else float(value)
    elif isinstance(value, float):
        read = value
    else:
        return None
    if isinstance(read, float) and read.is_integer():
        return int(read)
    return read if isinstance(value, str) else None
