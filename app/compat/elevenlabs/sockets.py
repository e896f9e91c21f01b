"""ElevenLabs' WebSockets: one text (`stream-input`) or several (`multi-stream-input`)."""

from fastapi import APIRouter, WebSocket

from app.api.realtime.session import serve_session
from app.compat.elevenlabs.contexts import ContextsSession
from app.compat.elevenlabs.session import ElevenLabsSession

elevenlabs_live_router = APIRouter()


@elevenlabs_live_router.websocket("/v1/text-to-speech/{voice_id}/stream-input")
async def elevenlabs_live(websocket: WebSocket) -> None:
    """Speak a text while it is being written, as ElevenLabs would."""
    await serve_session(websocket, ElevenLabsSession, voice=websocket.path_params["voice_id"])


@elevenlabs_live_router.websocket("/v1/text-to-speech/{voice_id}/multi-stream-input")
async def elevenlabs_contexts(websocket: WebSocket) -> None:
    """Speak several texts at once while they are being written, as ElevenLabs would."""
    await serve_session(websocket, ContextsSession, voice=websocket.path_params["voice_id"])
