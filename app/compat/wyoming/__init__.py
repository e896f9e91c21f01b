"""The Wyoming protocol of Home Assistant, over TCP."""

from typing import Final

from app.compat.compat_api import CompatApi
from app.compat.wyoming.server import listening

WYOMING: Final = CompatApi(background=listening)
