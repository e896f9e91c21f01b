"""The WebSocket `/v1/audio/speech/stream`: who may open one of those who may come in."""

from fastapi import APIRouter, WebSocket
from starlette.responses import JSONResponse

from app.api.errors import error_response, speech_error_response
from app.api.gate.admission import Admission
from app.api.gate.askers import asker
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
    with sessions.held(asker(websocket)):
        offered = PROTOCOL in websocket.scope["subprotocols"]
        await websocket.accept(PROTOCOL if offered else None)
        admission: Admission = state.admission
        await LiveSession(websocket, state.engine, state.recent, admission, settings).run()


def _refusal(websocket: WebSocket, engine: SpeechEngine, sessions: Places) -> JSONResponse | None:
    """Return why a client may open no session, as the answer to its handshake."""
    offered = websocket.scope["subprotocols"]
    if offered and PROTOCOL not in offered:
        message = f"the subprotocol here is {PROTOCOL}"
        return error_response(422, message, param="sec-websocket-protocol", code="subprotocol")
    try:
        websocket.app.state.admission.check_open()
        engine.check_ready()
    except SpeechError as error:
        return speech_error_response(error)
    if not sessions.free(asker(websocket)):
        message = f"{sessions.taken} sessions are open, and no more may, or no more of yours"
        headers = {"Retry-After": "5"}
        return error_response(503, message, code="too_many_sessions", headers=headers)
    return None
