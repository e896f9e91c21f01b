"""A service that plays its steps and chunks, over one pool, speaks as one that calls them.

They are replayed from tape, and between two plays the temporaries of every graph are spoilt.
"""

import gc
import weakref
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from app.engine.admission.cost_model import CostModel
from app.engine.backend import capturers, synthesizer
from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import SpeechJob
from app.engine.memory import Memory
from app.engine.nar.graph_runner import ChunkSizes, NarGraphRunner
from app.engine.nar.stage import NarStage
from app.main import create_app, load_synthesizer
from gpu.graphs import GraphCapturer, Replay
from models.config import KvCacheDtype
from samplers.knobs.params import SamplingParams
from tests.app.tools.answers import report_of
from tests.app.tools.live_client import live
from tests.app.tools.serving import served, settings_of
from tests.capture.tape import Tape

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sorted_as_on_a_gpu")]

CPU, CALLING = torch.device("cpu"), partial(GraphCapturer, warm_ups=0)
ALL_SIZES = synthesizer.capture_chunks  # before a service that is replayed has fewer
TEXT = "One, two. [pause:0.3s] Four, five!"
REQUESTS: list[dict[str, Any]] = [
    {},
    {"nar_temperature": 1.0, "temperature": 0.8, "top_k": 40, "repetition_penalty": 1.2},
    {"nar_cfg_strength": 2.0, "cfg_strength": 1.5, "speed": 1.5},
    {"nar_levels": 0, "dry_multiplier": 0.8},
    {"nar_levels": 3, "nar_decision": "mean", "entropix": True},
    {"best_of": 3, "max_duration_s": 0.5},
    {"beam_width": 3, "max_duration_s": 0.5},
    {"backtrack": True, "backtrack_max_silence": 20, "context_utterances": 1},
    {"timestamps": "word", "prompt_as_prefix": True},
    {"timestamps": "word", "text_lookahead_words": 1, "cfg_strength": 1.5},
]  # fmt: skip


def on_a_gpu(patch: pytest.MonkeyPatch, capturer: Any, *, kept: KvCacheDtype = "auto") -> None:
    """Have services do on the CPU what they do on a GPU, with few sizes of graphs."""

    def captured(_: Any, speech: Any, pool: Any) -> NarGraphRunner:
        sizes = ChunkSizes(rows=(2,), columns=512, streams=9)
        return NarGraphRunner(speech, pool, capturer(CPU).capture, sizes)

    patch.setattr(synthesizer, "memory_of", lambda model, *_: Memory(model, 8 << 20, kept))
    patch.setattr(capturers, "GraphCapturer", lambda device, **_: capturer(device))
    patch.setattr(synthesizer, "capture_chunks", captured)
    patch.setattr(NarStage, "ready", NarStage.warm_up)


@pytest.fixture(scope="module")
def called(toy: Path) -> Iterator[httpx.Client]:
    with served(create_app(settings_of(toy, slots=4, alignment="1.1"))) as client:
        yield client


@pytest.fixture(scope="module")
def played(toy: Path) -> Iterator[httpx.Client]:
    with pytest.MonkeyPatch.context() as patch:
        on_a_gpu(patch, Tape)
        with served(create_app(settings_of(toy, slots=4, alignment="1.1"))) as client:
            yield client


def spoken(client: httpx.Client, knobs: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield codes and sound of a request whole, streamed, and over a socket."""
    fields = {"seed": 1, "max_duration_s": 2.0} | knobs
    for streamed in (False, True):
        wanted = fields | {"input": TEXT, "response_format": "pcm", "stream": streamed}
        answer = client.post("/tts", json=wanted)
        assert answer.status_code == 200, answer.text
        yield report_of(client, answer)["codes_sha256"], answer.content
    with live(client) as session:
        said = session.say(TEXT[:9], TEXT[9:], **fields)
        yield said["codes_sha256"], session.sound


@pytest.mark.parametrize("knobs", REQUESTS, ids=str)
def test_a_request_has_the_same_codes_and_sound_played_and_called_in_every_manner(
    called: httpx.Client, played: httpx.Client, knobs: dict[str, Any]
) -> None:
    codes, sound = next(spoken(called, knobs))
    assert sound
    for other, heard in spoken(played, knobs):
        assert other == codes
        first, second = (np.frombuffer(one, "<i2").astype(int) for one in (sound, heard))
        assert np.abs(first - second).max() <= 1  # a step of PCM


def test_a_client_who_leaves_ends_its_own_speech_alone(
    called: httpx.Client, played: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = {"input": 20 * TEXT, "response_format": "pcm", "stream": True, "seed": 1}
    with played.stream("POST", "/tts", json=wanted) as answer:
        next(answer.iter_raw())
    codes, _ = next(spoken(called, {}))
    assert [found for found, _ in spoken(played, {})] == 3 * [codes]
    assert not [one for one in caplog.records if one.levelname == "CRITICAL"]


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


def test_with_8_bits_a_request_has_the_codes_alone_that_it_has_among_others(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_gpu(monkeypatch, CALLING, kept="int8")
    backend = load_synthesizer(settings_of(toy, slots=4, kv_cache_dtype="int8"))
    assert backend.checks.check_deterministic()
    assert backend.memory.pool is not None
    assert backend.memory.pool.pool().keys[0].dtype == torch.int8


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
