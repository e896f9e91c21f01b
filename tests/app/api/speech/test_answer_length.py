"""How much sound one request may be: told beforehand, made in small steps, dropped with its client.

The engine is a fake whose speech takes no time, so that what is measured is what comes after it.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from fastapi import FastAPI

from app.api.services import ClientLimits, Services
from app.audio.render_pool import RenderPool
from app.engine.admission.quota import ClientQuota
from app.main import create_app
from app.settings import Settings
from tests.app.tools.answers import nothing_works, path_of, report_of
from tests.app.tools.live_client import live
from tests.app.tools.serving import served, until
from tests.fakes import FakeBackend, fake_engine

T = TypeVar("T")
PAUSES = "a [pause:10s]" * 75
CHUNK_S = 10.0
LONG = "Hello."  # a chunk a character: 60 s of sound; at a quarter of the speed 240 s


class Counting(RenderPool):
    """A render_pool that tells what it did."""

    steps = 0
    longest_s = 0.0

    async def run(self, who: str, work: Callable[[], T]) -> T:
        def timed() -> T:
            self.steps += 1
            began_s = time.thread_time()
            result = work()
            self.longest_s = max(self.longest_s, time.thread_time() - began_s)
            return result

        return await super().run(who, timed)


def app_with_counts() -> tuple[FastAPI, Counting]:
    app = create_app(Settings(), fake_engine(FakeBackend(CHUNK_S), slots=8))
    render_pool = Counting(1)
    app.state.services = replace(app.state.services, render_pool=render_pool)
    return app, render_pool


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/tts", "/v1/audio/speech"])
def test_pauses_that_last_too_long_are_refused_before_any_work(toy_server, path) -> None:
    wanted = {"input": PAUSES, "speed": 0.25, "loudness_lufs": -16}
    answer = toy_server.post(path, json=wanted)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (422, "input")
    assert "at most 1800 s are allowed" in error["message"]


@pytest.mark.slow
def test_an_operator_sets_the_limit(toy: Path, tmp_path: Path) -> None:
    settings = Settings(model=str(toy), device="cpu", voices=str(tmp_path), max_audio_s=3)
    with served(create_app(settings)) as client:
        assert client.post("/tts", json={"input": "a [pause:2s] b"}).status_code == 200
        assert client.post("/tts", json={"input": "a [pause:4s] b"}).status_code == 422
        with live(client) as session:
            done = session.say("a. [pause:2s] b. [pause:2s] c. [pause:2s] d.", max_duration_s=2)
            assert done["finish_reason"] == "error"
            assert done["audio_s"] < 5
            error = next(one for one in session.seen if one["type"] == "error")["error"]
            assert error["param"] == "input"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["wav", "mp3"])
def test_sound_is_rendered_in_small_steps(form: str) -> None:
    app, render_pool = app_with_counts()
    with served(app) as client:
        wanted = {"input": LONG, "speed": 0.25, "loudness_lufs": -16, "response_format": form}
        whole = client.post("/tts", json=wanted | {"stream": False})
        assert whole.status_code == 200
        assert float(whole.headers["x-audio-ms"]) == 240_000
        assert render_pool.steps > 50
        assert render_pool.longest_s < 5  # but the measurement of loudness, a step is 2 s of sound


@pytest.mark.slow
def test_what_a_client_left_is_rendered_no_more() -> None:
    app, render_pool = app_with_counts()
    with served(app) as client:
        wanted = {"input": LONG, "speed": 0.25, "response_format": "mp3", "stream": False}
        for _ in range(4):
            with suppress(httpx.TimeoutException):
                client.post("/tts", json=wanted, timeout=0.4)
        until(lambda: nothing_works(client))
        time.sleep(0.5)
        steps = render_pool.steps
        time.sleep(0.5)
        assert render_pool.steps == steps
        assert steps < 4 * 30  # of which each would take as many


TALL = {"utterances": [[[1]] * 400]}
"""Codes of five seconds, of which a speech at a quarter of the speed lasts 21."""


@pytest.fixture(scope="module")
def short(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server whose speeches last at most 8 s."""
    voices = str(tmp_path_factory.mktemp("voices"))
    settings = Settings(model=str(toy), device="cpu", voices=voices, max_audio_s=8)
    with served(create_app(settings)) as client:
        yield client


@pytest.mark.parametrize(("speed", "status"), [(1.0, 200), (0.25, 422)])
def test_codes_in_place_of_a_speech_last_no_longer_than_a_text_may(short, speed, status) -> None:
    wanted = {"input": "Hi.", "max_duration_s": 1, "speed": speed}
    spoken = short.post("/tts", json=wanted)
    assert spoken.status_code == 200, spoken.text
    path = path_of(spoken, "/audio")
    assert short.get(path).content == spoken.content
    answer = short.post(path, json=TALL)
    assert answer.status_code == status, answer.text
    if status == 422:
        assert answer.json()["error"]["param"] == "utterances"


@pytest.mark.slow
def test_a_take_that_is_continued_counts_with_the_frames_that_are_kept(short) -> None:
    first = short.post("/tts", json={"input": "Hello there. " * 3, "max_duration_s": 6, "seed": 1})
    assert first.status_code == 200, first.text
    frames = int(first.headers["x-frames"])
    report = report_of(short, first)
    last = len(report["utterances"]) - 1
    place = {"id": first.headers["x-request-id"], "utterance": last, "frame": 0}
    wanted = {"input": "Hello there. " * 3, "max_duration_s": 1, "continue_from": place, "seed": 1}
    answer = short.post("/tts", json=wanted | {"speed": 0.25})
    kept_s = (frames - len(report["utterances"][last]["codes"])) / 75
    assert answer.status_code == (422 if 4 * kept_s > 8 else 200), answer.text


@pytest.mark.slow
def test_samples_of_whole_speeches_are_a_pool_of_which_a_client_has_a_share() -> None:
    settings = Settings()
    places = ClientQuota(90 * 24_000)  # a client may have 72 s of them
    engine = fake_engine(FakeBackend(CHUNK_S), slots=8)
    app = create_app(
        settings, engine, limits=replace(ClientLimits.of(settings), whole_samples=places)
    )
    with served(app) as client:
        wanted = {"input": "Hello.", "response_format": "wav", "stream": False}
        assert client.post("/tts", json=wanted).status_code == 200
        until(lambda: not places.taken)  # given back after the last byte
        answer = client.post("/tts", json=wanted | {"speed": 0.25})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_busy")
        assert answer.headers["retry-after"]
        until(lambda: not places.taken)
        assert client.post("/tts", json=wanted | {"stream": True, "speed": 0.25}).status_code == 200


@pytest.mark.slow
def test_a_whole_answer_that_is_not_read_is_cut_off_and_gives_its_place_back() -> None:
    settings = Settings(stall_timeout_s=0.5)
    app = create_app(settings, fake_engine(FakeBackend(CHUNK_S), slots=8))
    services: Services = app.state.services
    with served(app) as client:
        body = b'{"input": "Hello. Hello. Hello.", "response_format": "wav", "stream": false}'
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect((client.base_url.host, client.base_url.port or 80))
            reader.sendall(
                b"POST /tts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            until(lambda: services.limits.whole_samples.taken)
            assert services.admission.working == 1
            until(lambda: not services.limits.whole_samples.taken)
            until(lambda: not services.admission.working)
            reader.settimeout(20)
            got = 0
            with suppress(ConnectionError):
                while piece := reader.recv(65_536):
                    got += len(piece)
            assert got < 20 * CHUNK_S * 48_000 * 0.9
