"""ElevenLabs' API: speech, voices, the list of models, WebSockets for one text and for several."""

from typing import Final

from app.compat.compat_api import CompatApi
from app.compat.elevenlabs.models import ELEVENLABS_MODELS, KEY_HEADER
from app.compat.elevenlabs.sockets import elevenlabs_live_router
from app.compat.elevenlabs.speech import ElevenLabsRequest, elevenlabs_router
from app.compat.elevenlabs.voices import elevenlabs_voices_router

ELEVENLABS: Final = CompatApi(
    routers=(elevenlabs_router, elevenlabs_voices_router),
    socket_routers=(elevenlabs_live_router,),
    bodies=(ElevenLabsRequest,),
    uploads=frozenset({("POST", "/v1/voices/add")}),
    key_headers=(KEY_HEADER,),
    model_listings=(ELEVENLABS_MODELS,),
)
