"""Kokoro-FastAPI's API: speech with the times of its words, dialogues, phonemes."""

from typing import Final

from app.compat.compat_api import CompatApi
from app.compat.kokoro.captions import CaptionedRequest, captioned_router
from app.compat.kokoro.dialogue import DialogueRequest, dialogue_router
from app.compat.kokoro.phonemes import PhonemeSpeechRequest, PhonemizeRequest, phonemes_router

KOKORO: Final = CompatApi(
    routers=(captioned_router, dialogue_router, phonemes_router),
    bodies=(CaptionedRequest, DialogueRequest, PhonemizeRequest, PhonemeSpeechRequest),
)
