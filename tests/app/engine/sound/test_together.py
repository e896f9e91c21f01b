"""An engine whose steps and chunks are recorded, over one pool, speaks as one that records none."""

import asyncio
import gc
import weakref
from collections.abc import Sequence
from contextlib import aclosing, closing
from typing import Any

import numpy as np
import pytest
import torch

from app.engine.admission import Capacity
from app.engine.backend import synthesizer
from app.engine.backend.options import ModelOptions
from app.engine.backend.synthesizer import Synthesizer
from app.engine.engine import SpeechEngine
from app.engine.job import AudioChunk, Samples, SpeechJob, SpeechResult
from app.engine.memory import Memory
from app.engine.serving.options import EngineOptions
from app.engine.sound.decoder import SoundDecoder
from app.engine.sound.recording import ChunkSizes, RecordedChunks
from app.engine.sound.utterance import SoundUtterance
from app.main import load_synthesizer
from app.settings import Settings
from models.checkpoints import SpeechModel
from models.config import KvCacheDtype
from models.cuda.graphs import Recorder
from models.stack.paged_cache import PagePool
from samplers.knobs.params import SamplingParams

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TEXTS = ("One, two. Three, four, five!", "Hello there.", "So, [pause:0.3s] it was. Well.", "Ten.")
KNOBS: list[dict[str, Any]] = [
    {}, {"nar_temperature": 1.0}, {"nar_cfg_strength": 2.0}, {"nar_levels": 0},
]  # fmt: skip
CPU = torch.device("cpu")


def recorded(speech: SpeechModel, pool: PagePool) -> RecordedChunks:
    sizes = ChunkSizes(rows=(1, 6), columns=512)
    return RecordedChunks(speech, pool, Recorder(CPU).record, sizes, warm_ups=0)


def jobs() -> list[SpeechJob]:
    return [
        SpeechJob(f"{number}", text, SamplingParams(seed=number, **knobs), max_duration_s=3.0)
        for number, (text, knobs) in enumerate(zip(TEXTS, KNOBS, strict=True))
    ]


def loaded(toy: Any) -> Synthesizer:
    return Synthesizer.load(ModelOptions(toy, "cpu", threads=1, max_text_chars=200))


@pytest.fixture
def backend(toy: Any, monkeypatch: pytest.MonkeyPatch) -> Synthesizer:
    """A backend that does on the CPU what it does on a GPU."""
    monkeypatch.setattr(synthesizer, "memory_of", lambda model, *_: Memory(model, 8 << 20))
    backend = loaded(toy)
    assert backend._memory is not None
    decoder = SoundDecoder(backend._speech, backend._memory.pool, recorded)
    backend._sound_decoder = decoder
    decoder.warm_up()
    return backend


def joined(chunks: Sequence[AudioChunk]) -> tuple[Samples, SpeechResult]:
    result = chunks[-1].result
    assert result is not None
    return np.concatenate([chunk.samples for chunk in chunks]), result


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many chunks were made at once, each time."""
    made: list[int] = []
    right = SoundDecoder.make_together

    def make_together(
        decoder: SoundDecoder, utterances: Sequence[SoundUtterance]
    ) -> Sequence[SoundUtterance]:
        found = right(decoder, utterances)
        made.append(len(found))
        return found

    monkeypatch.setattr(SoundDecoder, "make_together", make_together)
    return made


async def test_speech_is_the_same_and_a_job_that_is_given_up_disturbs_no_other(
    toy: Any, backend: Synthesizer, together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthesizer, "memory_of", lambda *_: None)
    plain = loaded(toy)
    expected = [joined([*plain.speak(plain.plan(job))]) for job in jobs()]
    assert backend.chunks_at_once == 6

    async def speak(job: SpeechJob) -> tuple[Samples, SpeechResult]:
        async with aclosing(engine.submit(job)) as chunks:
            return joined([chunk async for chunk in chunks])

    async def leave() -> None:
        async with aclosing(engine.submit(SpeechJob("left", TEXTS[0], SamplingParams()))) as chunks:
            async for _ in chunks:
                return

    async with SpeechEngine(
        lambda: backend, EngineOptions(max_queue=20, request_timeout_s=300.0, slots=12)
    ) as engine:
        await engine.wait_ready()
        left = asyncio.gather(leave(), leave())
        found = await asyncio.gather(*map(speak, jobs()))
        await left
        told = backend.cache_bytes
        assert told["level_0"] == 0  # in use, now that all have ended
        assert 0 < told["prefixes"] < told["used"] < told["pool"] <= 8 << 20

    for (samples, result), (sound, wanted) in zip(found, expected, strict=True):
        assert result.codes_sha256 == wanted.codes_sha256
        assert samples.shape == sound.shape
        assert np.abs(samples - sound).max() <= 1e-5 * np.abs(sound).max()
    assert max(together) >= 1  # how many wait at once is a matter of time


def test_what_was_recorded_goes_with_the_weights_and_comes_back(backend: Synthesizer) -> None:
    decoder, memory = backend._sound_decoder, backend._memory
    assert isinstance(decoder, SoundDecoder)
    assert memory is not None
    held, pool = decoder.recorded, weakref.ref(memory.pool())
    assert held is not None
    with closing(backend.batch(2)) as batch:
        assert backend.cache_bytes["level_0"] == 0
    backend.unload(lambda: True)
    assert (decoder.recorded, decoder.chunks_at_once) == (None, 1)
    assert not held._plays
    del held, batch
    gc.collect()
    assert pool() is None
    _, result = joined([*backend.speak(backend.plan(jobs()[1]))])
    assert decoder.recorded is not None
    assert decoder.pool is memory.held
    assert result.frames


def test_of_a_service_with_8_bits_a_request_has_the_codes_alone_that_it_has_among_others(
    toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def memory_of(model: Any, _: object, dtype: KvCacheDtype) -> Memory:
        return Memory(model, 8 << 20, dtype)

    monkeypatch.setattr(synthesizer, "memory_of", memory_of)
    settings = Settings(
        model=str(toy), device="cpu", weights="float32", threads=1, kv_cache_dtype="int8"
    )
    backend = load_synthesizer(settings)
    alone = [backend.spoken(job) for job in jobs()[:2]]
    assert backend._memory is not None
    assert backend._memory.pool().keys[0].dtype == torch.int8
    assert all(result.frames for result in alone)
    assert backend.check_deterministic()
    assert [backend.spoken(job).codes_sha256 for job in jobs()[:2]] == [
        result.codes_sha256 for result in alone
    ]


def test_a_start_makes_at_most_50_recordings(
    backend: Synthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def record(function: Any, **_: Any) -> Any:
        made.append(function)
        return function

    class Counting:
        def __init__(self, *_: Any) -> None:
            self.record, self.failed = record, ()

    monkeypatch.setattr(synthesizer, "Recorder", Counting)
    assert backend._memory is not None
    RecordedChunks(backend._speech, backend._memory.pool(), record, warm_ups=0)
    assert backend.check_deterministic()
    with closing(backend.measure(Capacity(), 20)):
        assert 40 < len(made) <= 50
