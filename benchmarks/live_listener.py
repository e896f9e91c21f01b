"""A listener over the WebSocket, who hands the whole text over and listens."""

import json
from time import perf_counter
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from app.api.messages import PROTOCOL
from benchmarks.listener import Heard


async def hear_live(url: str, text: str, **fields: Any) -> Heard:
    """Ask for a speech over a session of its own; cancel the call to leave without a word.

    Args:
        url: Of the server, with http.
        text: What to say.
        fields: Others of `response.create`.
    """
    address = url.replace("http", "ws", 1) + "/v1/audio/speech/stream"
    async with connect(address, subprotocols=[Subprotocol(PROTOCOL)], proxy=None) as session:
        try:
            created = json.loads(await session.recv())
            for message in (
                {"type": "response.create"} | fields,
                {"type": "input_text.append", "sequence": 0, "text": text},
                {"type": "input_text.end", "sequence": 1},
            ):
                await session.send(json.dumps(message))
            return await _listen(session, created["audio"]["sample_rate_hz"])
        except BaseException:
            session.transport.abort()  # no goodbye: as when a network breaks
            raise


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
