"""The WebSocket route `/v1/audio/speech/stream`."""

from fastapi import APIRouter, WebSocket
from starlette.responses import JSONResponse

from app.api.errors import error_response, speech_error_response
from app.api.gate.admission import Admission, client_of
from app.api.live.messages import PROTOCOL
from app.api.live.session import LiveSession
from app.engine.engine import SpeechEngine
from app.engine.errors import SpeechError
from app.engine.serving.shares import Places
from app.settings import Settings

live_router = APIRouter()


@live_router.websocket("/v1/audio/speech/stream")
async def live_speech(websocket: WebSocket) -> None:
    """Speak a text while it is being written."""
    state = websocket.app.state
    settings: Settings = state.settings
    sessions: Places = state.live_sessions
    refusal = _refusal(websocket, state.engine, sessions)
    if refusal is not None:
        await websocket.send_denial_response(refusal)
        return
    with sessions.held(client_of(websocket)):
        offered = PROTOCOL in websocket.scope["subprotocols"]
        await websocket.accept(PROTOCOL if offered else None)
        admission: Admission = state.admission
        await LiveSession(websocket, state.engine, state.recent, admission, settings).run()


def _refusal(websocket: WebSocket, engine: SpeechEngine, sessions: Places) -> JSONResponse | None:
    """Return the error response to a handshake that is refused, or None."""
    offered = websocket.scope["subprotocols"]
    if offered and PROTOCOL not in offered:
        message = f"the subprotocol must be {PROTOCOL}"
        return error_response(422, message, param="sec-websocket-protocol", code="subprotocol")
    try:
        websocket.app.state.admission.check_open()
        engine.check_ready()
    except SpeechError as error:
        return speech_error_response(error)
    if not sessions.free(client_of(websocket)):
        message = f"{sessions.taken} sessions are open, which is the limit for all or for you"
        headers = {"Retry-After": "5"}
        return error_response(503, message, code="too_many_sessions", headers=headers)
    return None
