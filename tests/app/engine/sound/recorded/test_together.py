"""An engine whose chunks are made together speaks as one that makes each by itself."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest
import torch

from app.engine.backend.synthesizer import Synthesizer
from app.engine.engine import SpeechEngine
from app.engine.job import AudioChunk, Samples, SpeechJob, SpeechResult
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
    toy: Any, together: list[int]
) -> None:
    plain = loaded(toy)
    expected = [joined([*plain.speak(plain.plan(job))]) for job in jobs()]
    backend = loaded(toy)
    decoder = LocalSoundDecoder(backend._speech, 8 << 20, make_graph)
    backend._sound_decoder = decoder
    decoder.warm_up()
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

    for (samples, result), (sound, wanted) in zip(found, expected, strict=True):
        assert result.codes_sha256 == wanted.codes_sha256
        assert samples.shape == sound.shape
        assert np.abs(samples - sound).max() <= 1e-5 * np.abs(sound).max()
    assert max(together) >= 1  # how many wait at once is a matter of time


def test_what_was_recorded_goes_with_the_weights_and_comes_back(toy: Any) -> None:
    backend = loaded(toy)
    decoder = LocalSoundDecoder(backend._speech, 8 << 20, make_graph)
    decoder.warm_up()
    graph = decoder.graph
    assert graph is not None
    decoder.clear_cache()
    assert (decoder.graph, decoder.chunks_at_once) == (None, 1)
    assert not graph._plays
    backend._sound_decoder = decoder
    _, result = joined([*backend.speak(backend.plan(jobs()[1]))])
    assert decoder.graph is not None
    assert result.frames
