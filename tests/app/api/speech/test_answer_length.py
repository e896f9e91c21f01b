"""How much sound one request may be: told beforehand, made in small steps, dropped with its client.

The engine is a fake whose speech takes no time, so that what is measured is what comes after it.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from fastapi import FastAPI

from app.api.render_pool import RenderPool
from app.main import create_app
from app.settings import Settings
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
    app.state.render_pool = render_pool = Counting(1)
    return app, render_pool


@pytest.mark.parametrize("path", ["/tts", "/v1/audio/speech"])
def test_pauses_that_last_too_long_are_refused_before_any_work(toy_server, path) -> None:
    wanted = {"input": PAUSES, "speed": 0.25, "loudness_lufs": -16}
    answer = toy_server.post(path, json=wanted)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (422, "input")
    assert "at most 1800 s are allowed" in error["message"]


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


def test_what_a_client_left_is_rendered_no_more() -> None:
    app, render_pool = app_with_counts()
    with served(app) as client:
        wanted = {"input": LONG, "speed": 0.25, "response_format": "mp3", "stream": False}
        for _ in range(4):
            with suppress(httpx.TimeoutException):
                client.post("/tts", json=wanted, timeout=0.4)
        until(lambda: not render_pool.waiting)
        time.sleep(0.5)
        steps = render_pool.steps
        time.sleep(0.5)
        assert render_pool.steps == steps
        assert steps < 4 * 30  # of which each would take as many
