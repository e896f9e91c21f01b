"""Memory of all levels: by arithmetic at the published size, and who waits for it."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import USUAL_PHONEME_S, Plan, PromptedVoice, SpeechJob
from app.engine.memory import (
    PREFIX_SHARE,
    fits_in_memory,
    make_pool,
    pages_of,
    pool_bytes,
    prefix_bytes,
    usable_bytes,
)
from lab.benchmarks.card.step_cost import META, meta_model
from lab.benchmarks.model.published import published_config
from models.stack.paged_cache import PAGE, PagePool
from samplers.knobs.params import SamplingParams
from tests.app.tools.serving import settings_of

PROMPT, SYMBOLS, RATE_HZ = 225, 70, 75.0
FRAMES = math.ceil(SYMBOLS * USUAL_PHONEME_S * RATE_HZ)  # some 5 s
LEVELS = 7
GB = 10**9
CODEC = 7 * GB // 10  # with what CUDA itself takes
PUBLISHED = published_config(layers=12, width=1024).model_copy(update={"nar_mask": "block_causal"})


def pool_of(card_gb: int) -> PagePool:
    """Return the pool of a card that holds the model of the published size."""
    model = meta_model(layers=12, width=1024)
    weights = sum(one.nbytes for one in (*model.parameters(), *model.buffers()))
    return make_pool(model, pool_bytes(PUBLISHED, card_gb * GB - weights - CODEC))


def test_a_card_of_16_gb_keeps_the_prefixes_of_five_voices_beside_what_is_let_in() -> None:
    pool = pool_of(16)
    size, prefix = pool.pages * pool.page_bytes, -(-PROMPT // PAGE) * pool.page_bytes
    for slots, kept_bytes in zip((1, LEVELS), prefix_bytes(PUBLISHED, size), strict=True):
        assert kept_bytes // (slots * prefix) >= 5
    assert sum(prefix_bytes(PUBLISHED, size)) <= PREFIX_SHARE * size


@pytest.mark.parametrize(
    ("free_gb", "taken_gb", "utilization", "usable_gb"),
    [
        (70, 8, 1.0, 70),  # alone
        (70, 8, 0.5, 32),  # the first of two replicas
        (32, 8, 0.5, 32),  # the second has as much
        (20, 8, 0.5, 20),  # somebody else has taken more
        (70, 8, 0.05, 0),
    ],
)
def test_a_process_may_take_its_share_of_a_device_and_no_more_than_is_free(
    free_gb: int, taken_gb: int, utilization: float, usable_gb: int
) -> None:
    usable = usable_bytes(free_gb * GB, 80 * GB, taken_gb * GB, utilization)
    assert usable == usable_gb * GB


@pytest.fixture(scope="module")
def plan(toy: Any) -> Plan:
    own = Synthesizer.load(settings_of(toy, max_text_chars=200))
    return own.planner.plan(SpeechJob("one", "One.", SamplingParams(seed=1)))


@pytest.mark.parametrize(
    ("card_gb", "running", "fit"), [(16, 31, True), (16, 200, False), (80, 149, True)]
)
def test_a_card_holds_the_model_and_no_fewer_streams_than(
    plan: Plan, card_gb: int, running: int, fit: bool
) -> None:
    prompt = torch.zeros(PROMPT, LEVELS + 1, dtype=torch.int64)
    utterance = replace(plan.utterances[0], phonemes="a" * SYMBOLS)
    long = replace(plan, speakers=(PromptedVoice(plan.voice, prompt),), utterances=(utterance,))
    long = replace(long, pages=pages_of(long, PUBLISHED, RATE_HZ))
    assert fits_in_memory(long, [long] * running, pool_of(card_gb)) == fit


def test_a_job_waits_until_those_that_run_leave_it_room_and_alone_it_always_runs(
    plan: Plan,
) -> None:
    pages = pages_of(plan, PUBLISHED, RATE_HZ)
    assert pages >= LEVELS + 1
    plan = replace(plan, pages=pages)
    for room, running, fit in ((3 * pages - 1, 1, True), (3 * pages - 1, 2, False), (1, 0, True)):
        pool = PagePool(PUBLISHED, room, dtype=torch.bfloat16, device=META)
        assert fits_in_memory(plan, [plan] * running, pool) == fit
