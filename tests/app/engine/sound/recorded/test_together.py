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

from app.engine.backend import synthesizer
from app.engine.backend.synthesizer import Synthesizer
from app.engine.engine import SpeechEngine
from app.engine.job import AudioChunk, Samples, SpeechJob, SpeechResult
from app.engine.memory import Memory
from app.engine.sound.local import LocalSoundDecoder, UtteranceStream
from app.engine.sound.recorded.voice_graph import VoiceGraph
from models.checkpoints import SpeechModel
from models.cuda.graphs import Recorder
from models.stack.paged_cache import PagePool
from samplers.knobs.params import SamplingParams

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TEXTS = ("One, two. Three, four, five!", "Hello there.", "So, [pause:0.3s] it was. Well.", "Ten.")
KNOBS: list[dict[str, Any]] = [
    {}, {"nar_temperature": 1.0}, {"nar_cfg_strength": 2.0}, {"nar_levels": 0},
]  # fmt: skip
CPU = torch.device("cpu")


def make_graph(speech: SpeechModel, pool: PagePool | None) -> VoiceGraph:
    assert pool is not None
    record = Recorder(CPU).record
    return VoiceGraph(speech, pool, record=record, rows=(1, 6), columns=(512,), warm_ups=0)


def jobs() -> list[SpeechJob]:
    return [
        SpeechJob(f"{number}", text, SamplingParams(seed=number, **knobs), max_duration_s=3.0)
        for number, (text, knobs) in enumerate(zip(TEXTS, KNOBS, strict=True))
    ]


def loaded(toy: Any) -> Synthesizer:
    return Synthesizer.load(toy, "cpu", threads=1, max_text_chars=200)


@pytest.fixture
def backend(toy: Any, monkeypatch: pytest.MonkeyPatch) -> Synthesizer:
    """A backend that does on the CPU what it does on a GPU."""
    monkeypatch.setattr(synthesizer, "memory_of", lambda model, _: Memory(model, 8 << 20))
    backend = loaded(toy)
    assert backend._memory is not None
    decoder = LocalSoundDecoder(backend._speech, backend._memory.pool, make_graph)
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
    right = LocalSoundDecoder.make_together

    def make_together(
        decoder: LocalSoundDecoder, utterances: Sequence[UtteranceStream]
    ) -> Sequence[UtteranceStream]:
        found = right(decoder, utterances)
        made.append(len(found))
        return found

    monkeypatch.setattr(LocalSoundDecoder, "make_together", make_together)
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
        lambda: backend, slots=12, max_queue=20, request_timeout_s=300.0
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
    assert isinstance(decoder, LocalSoundDecoder)
    assert memory is not None
    graph, pool = decoder.graph, weakref.ref(memory.pool())
    assert graph is not None
    with closing(backend.batch(2)) as batch:
        assert backend.cache_bytes["level_0"] == 0
    backend.unload(lambda: True)
    assert (decoder.graph, decoder.chunks_at_once) == (None, 1)
    assert not graph._plays
    del graph, batch
    gc.collect()
    assert pool() is None
    _, result = joined([*backend.speak(backend.plan(jobs()[1]))])
    assert decoder.graph is not None
    assert decoder.pool is memory.held
    assert result.frames
