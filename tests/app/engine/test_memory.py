"""Memory of all levels: by arithmetic at the published size, and who waits for it."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from app.engine.backend.options import ModelOptions
from app.engine.backend.synthesizer import Synthesizer
from app.engine.job import USUAL_PHONEME_S, SpeechJob
from app.engine.memory import (
    PREFIX_SHARE,
    fits,
    make_pool,
    pages_of,
    pool_bytes,
    prefix_bytes,
)
from benchmarks.card.step_cost import META, meta_model
from benchmarks.model.published import published_config
from models.config import ModelConfig
from models.stack.paged_cache import PagedCache, PagePool
from models.valle import Valle
from samplers.knobs.params import SamplingParams

BF16 = torch.bfloat16
PROMPT, SYMBOLS, RATE_HZ = 225, 70, 75.0
FRAMES = math.ceil(SYMBOLS * USUAL_PHONEME_S * RATE_HZ)  # some 5 s
LEVELS = 7
GB = 10**9
CODEC = 7 * GB // 10  # with what CUDA itself takes


def published() -> ModelConfig:
    config = published_config(layers=12, width=1024)
    return config.model_copy(update={"nar_mask": "block_causal"})


def grown(pool: PagePool, prefixes: PagedCache | None, slots: int, length: int) -> PagedCache:
    """Return so many sequences of a stream as they are at its end."""
    cache = pool.new_cache(slots, 4096)
    for slot in range(slots):
        if prefixes is not None:
            cache.load(slot, prefixes, source_slot=slot)
        cache.reserve(slot, length)
        cache.advance(slot, length - cache.lengths[slot])
    return cache


def used_bytes(pool: PagePool, slots: int) -> tuple[int, int]:
    """Return what so many sequences take at the end of a stream: a voice's own, and the rest."""
    voice = grown(pool, None, slots, PROMPT)
    before = pool.used_bytes
    stream = grown(pool, voice, slots, PROMPT + SYMBOLS + FRAMES)
    assert stream.bytes > pool.used_bytes - before
    return voice.bytes, pool.used_bytes - before


@pytest.fixture(scope="module")
def model() -> Valle:
    return meta_model(layers=12, width=1024)


def pool_bytes_on(model: Valle, card_bytes: int) -> int:
    weights = sum(one.nbytes for one in (*model.parameters(), *model.buffers()))
    return pool_bytes(published(), card_bytes - weights - CODEC)


def streams_that_fit(model: Valle, card_bytes: int) -> int:
    """Return how many streams of one voice the pool of a card holds."""
    pool = make_pool(model, pool_bytes_on(model, card_bytes))
    voice, stream = used_bytes(pool, 1 + LEVELS)
    return (pool.pages * pool.page_bytes - voice) // stream


def test_a_card_of_16_gb_holds_the_model_and_32_streams(model: Valle) -> None:
    fit = [streams_that_fit(model, size * GB) for size in (16, 24, 80)]
    assert fit[0] >= 32
    assert fit[2] >= 150


def test_admission_lets_no_fewer_streams_in_than_32_on_a_card_of_16_gb(
    model: Valle, synthesizer: Synthesizer
) -> None:
    pool = make_pool(model, pool_bytes_on(model, 16 * GB))
    one = synthesizer.plan(SpeechJob("one", "One.", SamplingParams(seed=1)))
    prompt = torch.zeros(PROMPT, LEVELS + 1, dtype=torch.int64)
    utterance = replace(one.utterances[0], phonemes="a" * SYMBOLS)
    plan = replace(one, speakers=((one.voice, prompt),), utterances=(utterance,))
    assert fits(plan, [plan] * 31, pool, published(), RATE_HZ)
    assert not fits(plan, [plan] * 200, pool, published(), RATE_HZ)


def test_a_card_of_16_gb_keeps_the_prefixes_of_five_voices_beside_what_is_let_in(
    model: Valle,
) -> None:
    size = pool_bytes_on(model, 16 * GB)
    pool = make_pool(model, size)
    for slots, kept_bytes in zip((1, LEVELS), prefix_bytes(published(), size), strict=True):
        assert kept_bytes // grown(pool, None, slots, PROMPT).bytes >= 5
    assert sum(prefix_bytes(published(), size)) <= PREFIX_SHARE * size


@pytest.fixture(scope="module")
def synthesizer(toy: Any) -> Synthesizer:
    return Synthesizer.load(ModelOptions(toy, "cpu", threads=1, max_text_chars=200))


def test_a_job_waits_until_those_that_run_leave_it_room(synthesizer: Synthesizer) -> None:
    one = synthesizer.plan(SpeechJob("one", "One. Two, three.", SamplingParams(seed=1)))
    config = synthesizer._speech.model.config
    pages = pages_of(one, config, RATE_HZ)
    assert pages >= config.levels
    pool = PagePool(config, 3 * pages - 1, dtype=BF16, device=META)
    assert fits(one, [one], pool, config, RATE_HZ)
    assert not fits(one, [one, one], pool, config, RATE_HZ)
    small = PagePool(config, 1, dtype=BF16, device=META)
    assert fits(one, [], small, config, RATE_HZ)
