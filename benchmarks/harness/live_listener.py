"""A listener over the WebSocket, who hands the whole text over and listens."""

import json
from collections.abc import Mapping
from time import perf_counter
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from app.api.live.messages import PROTOCOL
from benchmarks.harness.listener import Heard


async def hear_live(url: str, text: str, **fields: Any) -> Heard:
    """Ask for a speech over a session of its own; cancel the call to leave without a word.

    Args:
        url: Of the server, with http.
        text: What to say.
        fields: Others of `response.create`.
    """
    address = url.replace("http", "ws", 1) + "/v1/audio/speech/stream"
    try:
        async with connect(address, subprotocols=[Subprotocol(PROTOCOL)], proxy=None) as session:
            try:
                return await _speak(session, text, fields)
            except BaseException:
                session.transport.abort()  # no goodbye: as when a network breaks
                raise
    except InvalidStatus as refused:
        return Heard(refused.response.status_code, sound=bytes(refused.response.body or b""))
    except (OSError, WebSocketException) as error:
        return Heard(0, broke=type(error).__name__)


async def _speak(session: ClientConnection, text: str, fields: Mapping[str, Any]) -> Heard:
    """Hand the text over, and listen."""
    created = json.loads(await session.recv())
    for message in (
        {"type": "response.create", **fields},
        {"type": "input_text.append", "sequence": 0, "text": text},
        {"type": "input_text.end", "sequence": 1},
    ):
        await session.send(json.dumps(message))
    return await _listen(session, created["audio"]["sample_rate_hz"])


async def _listen(session: ClientConnection, rate_hz: int) -> Heard:
    """Listen to the `response.done`, whose fields take the place of headers."""
    sent_s, sound = perf_counter(), bytearray()
    arrivals: list[tuple[float, int]] = []
    broke, done = None, dict[str, Any]()
    try:
        while done.get("type") != "response.done":
            message = await session.recv()
            if isinstance(message, bytes):
                arrivals.append((perf_counter() - sent_s, len(message)))
                sound += message
                continue
            done = json.loads(message)
            if done["type"] == "error":
                broke = f"{done['error']['code']}: {done['error']['message']}"
                if done["response_id"] is None:  # refused before it began
                    break
    except ConnectionClosed as error:
        broke = broke or type(error).__name__
    headers = {"x-codes-sha256": str(done.get("codes_sha256")), "x-seed": str(done.get("seed"))}
    return Heard(
        status=200,
        id=str(done.get("response_id", "")),
        headers=headers,
        rate_hz=rate_hz,
        sent_s=sent_s,
        arrivals=tuple(arrivals),
        sound=bytes(sound),
        broke=broke,
    )
