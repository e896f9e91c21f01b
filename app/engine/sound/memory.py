"""What the keys and values of the finer levels take of a GPU's memory, and which job has room."""

import math
from collections.abc import Iterable
from typing import Final

import torch

from app.engine.interface import Plan
from app.engine.job import USUAL_PHONEME_S
from models.config import ModelConfig
from models.stack.paged_cache import PAGE, PagePool, page_bytes_of
from samplers.knobs.features import is_guided

SHARE: Final = 0.5
"""Of the memory that is free when the model has been loaded; level 0 has most of the rest."""

MARGIN: Final = 1.25
"""Speech that lasts so much longer than expected still fits; what lasts longer than all margins
together fails alone."""

_MARKS = 4  # language, separators and the like, beside the symbols of a text


def pool_bytes(device: torch.device) -> int:
    """Return the bytes of the finer levels' pool; 0 on a CPU, where there is none."""
    if device.type != "cuda":
        return 0
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return int(SHARE * free_bytes)


def make_pool(config: ModelConfig, size: int, dtype: torch.dtype, device: torch.device) -> PagePool:
    """Return a pool of at most ``size`` bytes."""
    head_dim = config.width // config.heads
    page = page_bytes_of(config.layers, config.kv_heads, head_dim, dtype.itemsize)
    return PagePool(config, size // page, dtype=dtype, device=device)


def pages_of(plan: Plan, config: ModelConfig, frame_rate_hz: float) -> int:
    """Return the pages that a job takes at most, if its speech is no longer than expected.

    Args:
        plan: The job.
        config: Of the model.
        frame_rate_hz: Frames in a second of speech.
    """
    if config.nar_mask == "full" or not plan.utterances:  # such a mask has no cache
        return 0
    symbols = max(len(one.phonemes) for one in plan.utterances)
    frames = math.ceil(MARGIN * USUAL_PHONEME_S * symbols * frame_rate_hz)
    prompt = 0 if plan.prompt is None else len(plan.prompt)
    slots = min(plan.params.nar_levels, config.levels - 1)
    slots *= 2 if is_guided(plan.params, "nar") else 1
    return slots * math.ceil((prompt + symbols + _MARKS + frames) / PAGE)


def fits(
    plan: Plan, running: Iterable[Plan], pool: PagePool, config: ModelConfig, frame_rate_hz: float
) -> bool:
    """Return whether a job has room beside others; alone every job may try.

    Args:
        plan: The job.
        running: Those that have begun and not ended.
        pool: The finer levels' memory.
        config: Of the model.
        frame_rate_hz: Frames in a second of speech.
    """
    taken = [pages_of(one, config, frame_rate_hz) for one in running]
    return not taken or sum(taken) + pages_of(plan, config, frame_rate_hz) <= pool.pages
