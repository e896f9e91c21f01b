"""Routes of WebSockets, and how a session on one begins."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, WebSocket

from app.api.errors import error_response, speech_error_response
from app.api.gate.admission import client_of
from app.api.live.messages import PROTOCOL
from app.api.live.session import LiveSession
from app.api.live.speech import Services
from app.api.live.valle import ValleSession
from app.engine.errors import SpeechError

live_router = APIRouter()
unknown_router = APIRouter()
"""To be included last: it answers every other path."""


@live_router.websocket("/v1/audio/speech/stream")
async def live_speech(websocket: WebSocket) -> None:
    """Speak a text while it is being written."""
    offered = websocket.scope["subprotocols"]
    if offered and PROTOCOL not in offered:
        message = f"the subprotocol must be {PROTOCOL}"
        answer = error_response(422, message, param="sec-websocket-protocol", code="subprotocol")
        await websocket.send_denial_response(answer)
        return
    await serve_session(websocket, ValleSession, PROTOCOL if offered else None)


@unknown_router.websocket("/{path:path}")
async def unknown_socket(websocket: WebSocket) -> None:
    """Refuse a WebSocket of a path that there is not; otherwise the client would be told 403."""
    path = websocket.url.path[:_SHOWN_CHARS]
    message = f"WebSocket {path}: not found"
    await websocket.send_denial_response(error_response(404, message, code="not_found"))


_SHOWN_CHARS = 100


async def serve_session(
    websocket: WebSocket,
    session: Callable[[WebSocket, Services], LiveSession[Any]],
    subprotocol: str | None = None,
) -> None:
    """Accept a WebSocket and serve it, or refuse it if there is no place."""
    services = Services.of(websocket.app.state)
    try:
        place = services.place(client_of(websocket))
    except SpeechError as error:
        await websocket.send_denial_response(speech_error_response(error))
        return
    with place:
        await websocket.accept(subprotocol)
        await session(websocket, services).run()
