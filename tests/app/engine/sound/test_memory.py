"""Memory of the finer levels: by arithmetic at the published size, and who waits for it."""

import math
from typing import Any

import pytest
import torch

from app.engine.backend.synthesizer import Synthesizer
from app.engine.job import USUAL_PHONEME_S, SpeechJob
from app.engine.level_0.job import longest
from app.engine.level_0.job_batch import _max_length
from app.engine.sound.local import LocalSoundDecoder
from app.engine.sound.memory import fits, make_pool, pages_of
from app.engine.sound.utterance import UtteranceDecoder
from app.engine.utterance import UtteranceInput
from benchmarks.card.step_cost import META, meta_model
from benchmarks.model.published import published_config
from models.checkpoints import load_speech_model
from models.config import ModelConfig
from models.prefix_cache import PrefixCache, VoiceKey
from models.stack.cache import KVCache
from models.stack.paged_cache import PagedCache, PagePool
from samplers.knobs.params import SamplingParams

BF16 = torch.bfloat16
PROMPT, SYMBOLS, RATE_HZ = 225, 70, 75.0
FRAMES = math.ceil(SYMBOLS * USUAL_PHONEME_S * RATE_HZ)  # some 5 s
LEVELS = 7
GB = 10**9


def published() -> ModelConfig:
    config = published_config(layers=12, width=1024)
    return config.model_copy(update={"nar_mask": "block_causal"})


def grown(pool: PagePool, prefixes: PagedCache | None, length: int) -> PagedCache:
    """Return the finer levels of a stream as they are at its end."""
    cache = pool.new_cache(LEVELS, 4096)
    config = published()
    for slot in range(LEVELS):
        if prefixes is not None:
            cache.load(slot, prefixes, source_slot=slot)
        shape = (config.kv_heads, length - cache.lengths[slot], config.width // config.heads)
        new = torch.empty(shape, dtype=BF16, device=META)
        cache.write(0, slot, new, new)
        cache.advance(slot, shape[1])
    return cache


def stream_bytes() -> tuple[int, int]:
    """Return the bytes of a stream's finer levels before pages, and with them at its end."""
    most = PROMPT + SYMBOLS + longest(SYMBOLS, RATE_HZ)
    reserved = KVCache(published(), LEVELS, most, dtype=BF16, device=META).bytes
    pool = make_pool(published(), 8 * GB, BF16, META)
    voice = grown(pool, None, PROMPT)
    before = pool.used_bytes
    stream = grown(pool, voice, PROMPT + SYMBOLS + FRAMES)
    assert stream.bytes > pool.used_bytes - before
    return reserved, pool.used_bytes - before


def streams_that_fit(card_bytes: int) -> int:
    """Return how many streams of one voice a card holds, each with a row of level 0."""
    model = meta_model(layers=12, width=1024)
    weights = sum(one.nbytes for one in (*model.parameters(), *model.buffers()))
    row = KVCache(published(), 1, _max_length(published(), RATE_HZ), dtype=BF16, device=META).bytes
    pool = make_pool(published(), GB, BF16, META)
    voice = grown(pool, None, PROMPT).bytes
    working = GB + GB // 2  # codec, temporaries, graphs, CUDA itself
    return (card_bytes - weights - working - voice) // (row + stream_bytes()[1])


def test_a_stream_takes_less_than_half_of_what_it_took() -> None:
    reserved, used = stream_bytes()
    assert reserved > 370e6
    assert used < reserved / 2


def test_a_card_of_16_gb_holds_the_model_and_32_streams() -> None:
    assert streams_that_fit(16 * GB) >= 32
    assert streams_that_fit(80 * GB) >= 150


@pytest.fixture(scope="module")
def synthesizer(toy: Any) -> Synthesizer:
    return Synthesizer.load(toy, "cpu", threads=1, max_text_chars=200)


def test_a_job_waits_until_those_that_run_leave_it_room(synthesizer: Synthesizer) -> None:
    one = synthesizer.plan(SpeechJob("one", "One. Two, three.", SamplingParams(seed=1)))
    config = synthesizer._speech.model.config
    pages = pages_of(one, config, RATE_HZ)
    assert pages >= config.levels - 1
    pool = PagePool(config, 2 * pages, dtype=BF16, device=META)
    assert fits(one, [one], pool, config, RATE_HZ)
    assert not fits(one, [one, one], pool, config, RATE_HZ)
    small = PagePool(config, 1, dtype=BF16, device=META)
    assert fits(one, [], small, config, RATE_HZ)


def test_utterances_in_pages_have_the_codes_of_those_with_their_own_memory(toy: Any) -> None:
    speech = load_speech_model(toy, torch.device("cpu"))
    prompt = torch.randint(512, (70, speech.model.config.levels))
    inputs = UtteranceInput(
        [1, 10, 20, 30, 2], SamplingParams(nar_cfg_strength=2.0), 1, 0, 100, prompt=prompt,
        voice=VoiceKey(None, "one", 0),
    )  # fmt: skip
    codes = torch.randint(512, (90,), generator=torch.Generator().manual_seed(0))
    decoder = LocalSoundDecoder(speech, 64 << 20)
    alone = UtteranceDecoder(speech, inputs, PrefixCache(speech.model))
    pool = decoder.pool
    assert pool is not None
    first, second = decoder.begin(inputs), decoder.begin(inputs)
    for part in codes.split(20):
        for stream in (first, second, alone):
            list(stream.push(part))
    for stream in (first, second, alone):
        list(stream.push(codes[:0], ended=True))
    assert torch.equal(first.codes, alone.codes)
    assert torch.equal(second.codes, alone.codes)

    used = pool.used_bytes
    del first, second, stream
    assert 0 < pool.used_bytes < used  # the voice is kept
    decoder.clear_cache()
    assert pool.used_bytes == 0
    assert decoder.pool is None
