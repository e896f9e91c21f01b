"""The WebSocket `/v1/audio/speech/stream`: who may open one."""

from fastapi import APIRouter, WebSocket
from starlette.responses import JSONResponse

from app.api.errors import error_response, speech_error_response
from app.api.live_session import LiveSession
from app.api.messages import PROTOCOL
from app.engine.engine import SpeechEngine
from app.engine.errors import SpeechError
from app.settings import Settings

live_router = APIRouter()


class LiveSessions:
    """How many are open; touched on the event loop alone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0


@live_router.websocket("/v1/audio/speech/stream")
async def live_speech(websocket: WebSocket) -> None:
    """Speak a text while it is being written."""
    state = websocket.app.state
    settings: Settings = state.settings
    sessions: LiveSessions = state.live_sessions
    refusal = _refusal(websocket, state.engine, settings, sessions)
    if refusal is not None:
        await websocket.send_denial_response(refusal)
        return
    sessions.open += 1
    try:
        offered = PROTOCOL in websocket.scope["subprotocols"]
        await websocket.accept(PROTOCOL if offered else None)
        await LiveSession(websocket, state.engine, state.recent, settings).run()
    finally:
        sessions.open -= 1


def _refusal(
    websocket: WebSocket, engine: SpeechEngine, settings: Settings, sessions: LiveSessions
) -> JSONResponse | None:
    """Return why a client may open no session, as the answer to its handshake.

    Whoever asks for keys asks here: a browser can send one only as a further subprotocol.
    """
    if not _origin_allowed(websocket, settings.origins):
        return error_response(403, "this origin is not allowed", param="origin", code="origin")
    offered = websocket.scope["subprotocols"]
    if offered and PROTOCOL not in offered:
        message = f"the subprotocol here is {PROTOCOL}"
        return error_response(422, message, param="sec-websocket-protocol", code="subprotocol")
    try:
        engine.check_ready()
    except SpeechError as error:
        return speech_error_response(error)
    if sessions.open >= sessions.limit:
        message = f"{sessions.open} sessions are open already"
        headers = {"Retry-After": "5"}
        return error_response(503, message, code="too_many_sessions", headers=headers)
    return None


def _origin_allowed(websocket: WebSocket, origins: str) -> bool:
    """Tell whether a browser's page may connect: browsers say where it is from, and only they.

    Pages of this very host may, and those that the operator names.
    """
    allowed = {origin.strip() for origin in origins.split(",")}
    origin = websocket.headers.get("origin")
    if origin is None or "*" in allowed or origin in allowed:
        return True
    return origin.partition("://")[2] == websocket.headers.get("host")
