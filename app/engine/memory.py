"""The memory of a GPU for the keys and values of all levels, and which job has room in it."""

import math
import threading
from collections.abc import Iterable
from typing import Final

import torch

from app.engine.core import USUAL_PHONEME_S, Plan, PromptedVoice
from models.checkpoints.files import CheckpointError
from models.config import KvCacheDtype, ModelConfig
from models.prefix import MARKS
from models.stack.paged_cache import PAGE, PagePool, page_bytes_of
from models.valle import Valle
from samplers.knobs.features import is_guided

MEMORY_SHARE: Final = 0.75
"""Of the memory that is free when the model has been loaded. The rest is for what is captured, for
temporaries, and for utterances that are not sampled by a graph."""

AR_SHARE: Final = 0.25
"""The same of a model whose NAR levels keep nothing, but need more for temporaries."""

PREFIX_SHARE: Final = 0.05
"""Of the pool, for prefixes of voices that are kept, to each level the same."""

LEAST_BYTES: Final = 256 << 20
"""That a device must have beside the weights: with less not even one stream is made."""

MARGIN: Final = 1.25
"""Speech that lasts so much longer than expected still fits; what lasts longer than all margins
together fails alone."""


def usable_bytes(free_bytes: int, whole_bytes: int, taken_bytes: int, utilization: float) -> int:
    """Return the bytes that a process may still take of a device.

    ``free_bytes`` are free for everybody, and ``taken_bytes`` are what the process has of
    ``whole_bytes``, of which it may have ``utilization``.
    """
    return max(0, min(free_bytes, int(utilization * whole_bytes) - taken_bytes))


def pool_bytes(config: ModelConfig, free_bytes: int) -> int:
    """Return the bytes of the pool of a model, of those that are free when it has been loaded."""
    return int((AR_SHARE if config.nar_mask == "full" else MEMORY_SHARE) * free_bytes)


def prefix_bytes(config: ModelConfig, pool_bytes: int) -> tuple[int, int]:
    """Return the most bytes of prefixes that are kept for level 0, and for the NAR levels."""
    level = int(PREFIX_SHARE * pool_bytes / config.levels)
    return level, (config.levels - 1) * level


def make_pool(model: Valle, size: int, dtype: KvCacheDtype = "auto") -> PagePool:
    """Return a pool of at most ``size`` bytes for keys and values, of the weights' type or int8."""
    config = model.config
    weight = model.separator
    held = torch.int8 if dtype == "int8" else weight.dtype
    page = page_bytes_of(config, held)
    return PagePool(config, size // page - 1, dtype=held, device=weight.device)


class Memory:
    """The one pool of a loaded model, of ``size`` bytes, made when first asked for. Any thread."""

    def __init__(self, model: Valle, size: int, dtype: KvCacheDtype = "auto") -> None:
        self._model = model
        self.size = size
        self._dtype = dtype
        self._making = threading.Lock()
        self.held: PagePool | None = None

    def pool(self) -> PagePool:
        """Return the pool."""
        with self._making:
            if self.held is None:
                self.held = make_pool(self._model, self.size, self._dtype)
            return self.held

    def forget(self) -> None:
        """Let go of the pool; its memory is free once all its users are gone."""
        with self._making:
            self.held = None


def memory_of(
    model: Valle, device: torch.device, dtype: KvCacheDtype, utilization: float
) -> Memory | None:
    """Return the memory of a model that has just been loaded; None on a CPU, where there is none.

    How large the pool will be depends on what is free on the device now, and on ``utilization``:
    see `usable_bytes`.

    Raises CheckpointError if nothing is left beside the weights.
    """
    if device.type != "cuda":
        return None
    free_bytes, whole_bytes = torch.cuda.mem_get_info(device)
    taken_bytes = torch.cuda.memory_reserved(device)
    left_bytes = usable_bytes(free_bytes, whole_bytes, taken_bytes, utilization)
    if left_bytes < LEAST_BYTES:
        raise CheckpointError(
            f"the model takes {taken_bytes / 1e9:.1f} GB of the GPU's {whole_bytes / 1e9:.1f}, and"
            f" {left_bytes / 1e9:.1f} are left for speech; free some, or raise"
            f" TTS_GPU_MEMORY_UTILIZATION={utilization:g}"
        )
    return Memory(model, pool_bytes(model.config, left_bytes), dtype)


def pages_of(plan: Plan, config: ModelConfig, frame_rate_hz: float) -> int:
    """Return the pages that a job takes at most, if its speech is no longer than expected."""
    if not plan.utterances and not plan.job.part.is_open:
        return 0
    known = max((len(one.phonemes) for one in plan.utterances), default=0)
    symbols = config.max_phonemes if plan.job.part.is_open else known
    frames = math.ceil(MARGIN * USUAL_PHONEME_S * symbols * frame_rate_hz)
    voices = [PromptedVoice(*one) for one in plan.speakers]
    prompts = [len(one.said) + len(one.prompt) for one in voices if one.prompt is not None]
    prompt = max(prompts, default=0)
    nar_rows = min(plan.params.nar_levels, config.levels - 1)
    nar_rows *= 2 if is_guided(plan.params, "nar") else 1
    if config.nar_mask == "full":  # all is read anew in every pass
        nar_rows = 0
    return (plan.rows + nar_rows) * math.ceil((prompt + symbols + 2 + MARKS + frames) / PAGE)


def fits_in_memory(plan: Plan, running: Iterable[Plan], pool: PagePool) -> bool:
    """Return whether a job has room beside those that have begun; alone every job may try."""
    taken = [one.pages for one in running]
    room = (1 - PREFIX_SHARE) * pool.pages
    return not taken or sum(taken) + plan.pages <= room
