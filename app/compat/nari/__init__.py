"""nari-labs' WebSocket protocol."""

from typing import Final

from app.compat.compat_api import CompatApi
from app.compat.nari.session import nari_live_router

NARI: Final = CompatApi(socket_routers=(nari_live_router,))
