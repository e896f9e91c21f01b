"""vLLM-Omni's WebSocket protocol, on the path that it shares with ours."""

from typing import Final

from app.compat.compat_api import CompatApi
from app.compat.vllm_omni.session import stream_router

VLLM_OMNI: Final = CompatApi(socket_routers=(stream_router,))
