"""Kokoro-FastAPI's shape of speech with the times of its words."""

from typing import Final

from app.compat.compat_api import CompatApi
from app.compat.kokoro.captions import CaptionedRequest, captioned_router

KOKORO: Final = CompatApi(routers=(captioned_router,), bodies=(CaptionedRequest,))
