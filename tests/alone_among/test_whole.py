"""Requests to a service whose steps and chunks are called, or replayed over one pool.

They are replayed from tape, and between two plays the temporaries of every graph are spoilt.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Literal

import httpx
import numpy as np
import pytest

from app.main import create_app, load_synthesizer
from gpu.graphs import GraphCapturer
from tests.alone_among.harness import Schedule, alone_equals_among
from tests.app.engine.nar.gpu_service import on_a_gpu
from tests.app.tools.answers import report_of
from tests.app.tools.live_client import live
from tests.app.tools.serving import served, settings_of
from tests.capture.tape import Tape

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sorted_as_on_a_gpu")]

TEXT = "One, two. [pause:0.3s] Four, five!"
KNOBS: Sequence[dict[str, Any]] = (
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
)
Manner = Literal["whole", "streamed", "socket"]
MANNERS: tuple[Manner, ...] = ("whole", "streamed", "socket")
SLOTS = 8
OPTIONS: dict[str, Any] = {"slots": SLOTS, "alignment": "1.1", "max_wait_s": 3600}


@dataclass(frozen=True)
class Asked:
    """Knobs of a request by their number, and how it is asked for."""

    number: int
    manner: Manner


@dataclass(frozen=True)
class Spoken:
    """The hash of all codes, and the samples as 16 bits."""

    codes_sha256: str
    samples: "np.ndarray[Any, np.dtype[np.int16]]"


@dataclass(eq=False)
class Asking:
    """A request under way; whether its client is to leave once it has some sound."""

    asked: Asked
    leaves: Event = field(default_factory=Event)
    spoken: "Future[Spoken]" = field(default_factory=Future)


@dataclass
class Service:
    """Requests to a service at the same time; a stage.

    Args:
        client: Of the service.
        single: Of one that calls its steps, for who is alone.
        known: What becomes of each alone; the manner changes nothing.
    """

    client: httpx.Client
    single: httpx.Client
    threads: ThreadPoolExecutor
    known: dict[int, Spoken]
    running: list[Asking] = field(default_factory=list)

    def has_room(self, request: Asked) -> bool:
        return sum(not one.spoken.done() for one in self.running) < SLOTS // 2

    def begin(self, request: Asked) -> Asking:
        one = Asking(request)
        one.spoken = self.threads.submit(spoken, self.client, one)
        self.running.append(one)
        return one

    def step(self, running: Sequence[Asking]) -> None:
        time.sleep(0.02)  # it goes on by itself

    def is_over(self, running: Asking) -> bool:
        return running.spoken.done()

    def leave(self, running: Asking) -> None:
        running.leaves.set()

    def outcome(self, running: Asking) -> Spoken:
        return running.spoken.result()

    def error(self, running: Asking) -> None:
        running.spoken.result()

    def alone(self, request: Asked) -> Spoken:
        if request.number not in self.known:
            self.known[request.number] = spoken(self.single, Asking(Asked(request.number, "whole")))
        return self.known[request.number]

    def assert_same(self, found: Spoken, expected: Spoken) -> None:
        assert found.codes_sha256 == expected.codes_sha256
        assert found.samples.shape == expected.samples.shape
        step = np.abs(found.samples.astype(int) - expected.samples)
        assert step.max() <= 1  # of PCM


def spoken(client: httpx.Client, asking: Asking) -> Spoken:
    """Ask for a speech; hear all of it, or leave once that is wanted."""
    fields = {"seed": 1, "max_duration_s": 2.0} | KNOBS[asking.asked.number]
    if asking.asked.manner == "socket":
        with live(client) as session:
            said = session.say(TEXT[:9], TEXT[9:], **fields)
        return Spoken(said["codes_sha256"], np.frombuffer(session.sound, "<i2"))
    streams = asking.asked.manner == "streamed"
    wanted = fields | {"input": TEXT, "response_format": "pcm", "stream": streams}
    sound = bytearray()
    with client.stream("POST", "/tts", json=wanted) as answer:
        for part in answer.iter_raw():
            sound += part
            if asking.leaves.is_set():
                return Spoken("", np.zeros(0, np.int16))
    assert answer.status_code == 200, sound
    return Spoken(report_of(client, answer)["codes_sha256"], np.frombuffer(sound, "<i2"))


@pytest.fixture(scope="module")
def called(toy: Path) -> Iterator[httpx.Client]:
    with served(create_app(settings_of(toy, **OPTIONS))) as client:
        yield client


@pytest.fixture(scope="module")
def replayed(toy: Path) -> Iterator[httpx.Client]:
    with pytest.MonkeyPatch.context() as patch:
        on_a_gpu(patch, Tape, pool_bytes=64 << 20)
        with served(create_app(settings_of(toy, **OPTIONS))) as client:
            yield client


@pytest.fixture(scope="module")
def known() -> dict[int, Spoken]:
    return {}


@pytest.mark.parametrize("service", ["called", "replayed"])
def test_a_request_has_among_others_the_codes_and_sound_that_it_has_alone(
    service: str,
    called: httpx.Client,
    known: dict[int, Spoken],
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = request.getfixturevalue(service)
    turns = range(2 * len(KNOBS))
    wanted = [Asked(turn % len(KNOBS), MANNERS[turn % len(MANNERS)]) for turn in turns]
    with ThreadPoolExecutor() as threads:
        stage = Service(client, called, threads, known)
        alone_equals_among(stage, wanted, Schedule(1, pauses=0.0))
    assert not [one for one in caplog.records if one.levelname == "CRITICAL"]


def test_a_cache_of_8_bits_says_itself_that_codes_are_those_of_each_alone(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_gpu(monkeypatch, partial(GraphCapturer, warm_ups=0), kept="int8")
    backend = load_synthesizer(settings_of(toy, slots=4, kv_cache_dtype="int8"))
    assert backend.checks.check_deterministic()
    assert backend.memory.pool is not None
    assert backend.memory.pool.pool().keys[0].itemsize == 1
