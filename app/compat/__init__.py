"""APIs of other services, a package each: programs that were written for them speak with this one.

Owns their paths, messages and errors, translated to those of `app.api`, which names none of them.
"""

from app.compat.compat_api import CompatApi
from app.compat.elevenlabs import ELEVENLABS
from app.compat.kokoro import KOKORO
from app.compat.nari import NARI
from app.compat.vllm_omni import VLLM_OMNI
from app.compat.wyoming import WYOMING

COMPAT_APIS: tuple[CompatApi, ...] = (VLLM_OMNI, NARI, ELEVENLABS, KOKORO, WYOMING)
"""All that there are, in the order in which their paths are tried and documented."""
