"""A WebSocket client that sends a whole text and receives its speech."""

import json
from collections.abc import Mapping
from time import perf_counter
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from app.api.realtime.valle import PROTOCOL
from app.commands.bench.listeners import ReceivedSpeech


async def receive_live(url: str, text: str, **fields: Any) -> ReceivedSpeech:
    """Request speech over a new session; cancelling the call aborts the connection.

    ``fields`` are further ones of `response.create`.
    """
    address = url.replace("http", "ws", 1) + "/v1/audio/speech/stream"
    try:
        async with connect(address, subprotocols=[Subprotocol(PROTOCOL)], proxy=None) as session:
            try:
                return await _request(session, text, fields)
            except BaseException:
                session.transport.abort()  # without a closing handshake, as when a network breaks
                raise
    except InvalidStatus as refused:
        return ReceivedSpeech(
            refused.response.status_code, sound=bytes(refused.response.body or b"")
        )
    except (OSError, WebSocketException) as error:
        return ReceivedSpeech(0, broke=type(error).__name__)


async def _request(
    session: ClientConnection, text: str, fields: Mapping[str, Any]
) -> ReceivedSpeech:
    """Send the text and receive the speech."""
    created = json.loads(await session.recv())
    for message in (
        {"type": "response.create", **fields},
        {"type": "input_text.append", "sequence": 0, "text": text},
        {"type": "input_text.end", "sequence": 1},
    ):
        await session.send(json.dumps(message))
    return await _receive(session, created["audio"]["sample_rate_hz"])


async def _receive(session: ClientConnection, rate_hz: int) -> ReceivedSpeech:
    """Receive until `response.done`, whose fields take the place of HTTP headers."""
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
    return ReceivedSpeech(
        status=200,
        id=str(done.get("response_id", "")),
        headers=headers,
        rate_hz=rate_hz,
        sent_s=sent_s,
        arrivals=tuple(arrivals),
        sound=bytes(sound),
        broke=broke,
    )
