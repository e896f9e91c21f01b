"""Graphs of a service: how many a start captures, and that they go and come with the weights."""

import gc
import weakref
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from app.engine.admission.cost_model import CostModel
from app.engine.backend import synthesizer
from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import SpeechJob
from app.engine.nar.stage import NarStage
from gpu.graphs import GraphCapturer, Replay
from samplers.knobs.params import SamplingParams
from tests.app.engine.nar.gpu_service import on_a_gpu
from tests.app.tools.serving import settings_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sorted_as_on_a_gpu")]

CALLING = partial(GraphCapturer, warm_ups=0)
ALL_SIZES = synthesizer.capture_chunks  # before a service that is replayed has fewer


def test_what_was_recorded_goes_with_the_weights_and_comes_back(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_gpu(monkeypatch, CALLING)
    backend = Synthesizer.load(settings_of(toy, max_text_chars=200))
    backend.audio.prepare_audio()
    decoder, memory = backend.audio.decoder, backend.memory.pool
    assert isinstance(decoder, NarStage)
    assert memory is not None
    held, pool = decoder.captured, weakref.ref(memory.pool())
    assert held is not None
    with closing(backend.ar.batch(2)) as batch:
        assert backend.memory.cache_bytes["level_0"] == 0
    backend.memory.unload(lambda: True)
    assert (decoder.captured, decoder.chunks_at_once) == (None, 1)
    assert not held._replays
    del held, batch
    gc.collect()
    assert pool() is None
    assert backend.spoken(SpeechJob("a job", "Hello there.", SamplingParams(seed=1))).frames
    assert decoder.captured is not None
    assert decoder.pool is memory.held


def test_a_start_makes_at_most_50_recordings(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Replay] = []

    def capture(_: GraphCapturer, function: Replay) -> Replay:
        made.append(function)
        return function

    on_a_gpu(monkeypatch, CALLING)
    monkeypatch.setattr(synthesizer, "capture_chunks", ALL_SIZES)
    monkeypatch.setattr(GraphCapturer, "capture", capture)
    backend = Synthesizer.load(settings_of(toy, max_text_chars=200, alignment="1.1"))
    backend.audio.prepare_audio()
    assert backend.checks.check_deterministic()
    with closing(backend.checks.measure(CostModel(), 20)):
        assert 40 < len(made) <= 50
