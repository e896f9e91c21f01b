"""Events of the Wyoming protocol, read from a client.

Source: https://github.com/OHF-Voice/wyoming. They are read here, not by its package, whose sizes
are what the peer says.
"""

import asyncio
from typing import Any, Final, NamedTuple

from app.api.middleware.pace import pace
from app.api.requests import sized_json
from app.engine.errors import InvalidRequest

LINE_BYTES: Final = 16_384


class Event(NamedTuple):
    """An event of the client."""

    type: str
    data: dict[str, Any]


async def read_event(reader: asyncio.StreamReader, max_bytes: int) -> Event:
    """Return the next event of a client, with so many bytes of data at most.

    Raises InvalidRequest if it is none, or too large, or carries sound.
    """
    try:
        line = await reader.readuntil()
    except asyncio.LimitOverrunError:
        raise InvalidRequest(f"the line is longer than {LINE_BYTES} bytes") from None
    head = _object(line)
    kind = head.get("type")
    data = head.get("data")
    length = head.get("data_length")
    data = {} if data is None else data
    length = 0 if length is None else length
    if not isinstance(kind, str) or not isinstance(data, dict) or type(length) is not int:
        raise InvalidRequest("the event is not valid")
    if head.get("payload_length"):
        raise InvalidRequest("no event with a payload is taken", param="payload_length")
    if not 0 <= length <= max_bytes:
        raise InvalidRequest(f"the data may have {max_bytes} bytes", param="data_length")
    if not length:
        return Event(kind, data)
    more = await reader.readexactly(length)
    await pace(length)
    return Event(kind, data | _object(more))


def _object(content: bytes) -> dict[str, Any]:
    try:
        sent = sized_json(content)
    except ValueError:
        sent = None
    if not isinstance(sent, dict):
        raise InvalidRequest("the event is not a JSON object")
    return sent
