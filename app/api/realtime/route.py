"""The WebSocket of protocol `valle.speech.v1`, and the refusal of those that there are not."""

from typing import Final

from fastapi import APIRouter
from starlette.websockets import WebSocket

from app.api import paths
from app.api.errors import error_response
from app.api.realtime.session import WebSocketSession, serve_session
from app.api.realtime.valle import PROTOCOL, ValleSession

_SHOWN_CHARS: Final = 100

live_router = APIRouter()

unknown_router = APIRouter()
"""To be included last: it answers every other path."""


async def serve_protocol(
    websocket: WebSocket, session: type[WebSocketSession], protocol: str
) -> None:
    """Serve a session if the client offers its subprotocol, or none."""
    offered = websocket.scope["subprotocols"]
    if offered and protocol not in offered:
        message = f"the subprotocol must be {protocol}"
        answer = error_response(422, message, param="sec-websocket-protocol", code="subprotocol")
        await websocket.send_denial_response(answer)
        return
    await serve_session(websocket, session, protocol if offered else None)


@live_router.websocket("/v1/audio/speech/stream")
async def live_speech(websocket: WebSocket) -> None:
    """Speak a text while it is being written."""
    await serve_protocol(websocket, ValleSession, PROTOCOL)


@unknown_router.websocket(paths.EVERY_PATH)
async def unknown_socket(websocket: WebSocket) -> None:
    """Refuse a WebSocket of a path that there is not; otherwise the client would be told 403."""
    path = websocket.url.path
    better = paths.hint(websocket.app.routes, path, "websocket")
    message = f"WebSocket {path[:_SHOWN_CHARS]}: not found{better and f'; {better}'}"
    await websocket.send_denial_response(error_response(404, message, code="not_found"))
