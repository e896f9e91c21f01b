"""How a process ends: what runs is finished, nothing new begins, and it does not wait for ever."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from websockets.exceptions import ConnectionClosed

from app.api.realtime.valle import PROTOCOL
from app.main import create_app
from app.server import DrainingServer
from app.settings import Settings
from tests.app.tools.live_client import live
from tests.app.tools.process import CHUNK_S, process
from tests.app.tools.serving import until
from tests.fakes import FakeBackend, fake_engine

KEY = "alice-0123456789"
TEXT = "wait for me"  # a frame a character
BYTES = len(TEXT) * round(CHUNK_S * 24_000) * 2


@pytest.mark.slow
def test_a_signal_lets_running_responses_end_and_nothing_begin(tmp_path: Path) -> None:
    settings = {"log_level": "debug", "api_keys": KEY}
    with process(tmp_path, **settings) as served, ThreadPoolExecutor(1) as streaming:
        client = served.client
        client.headers["authorization"] = f"Bearer {KEY}"
        body = {"input": TEXT, "response_format": "pcm", "stream": True}
        answer = streaming.submit(client.post, "/v1/audio/speech", json=body)
        offered = [PROTOCOL, f"valle.key.{KEY}"]
        with (
            live(client, subprotocols=offered) as idle,
            live(client, subprotocols=offered) as waiting,  # for its turn behind the other
        ):
            waiting.create()
            waiting.text(TEXT)
            waiting.end()
            until(lambda: client.get("/health").json()["queued"] == 1)
            served.process.terminate()
            until(lambda: client.get("/ready").status_code == 503)
            ready, refused = client.get("/ready"), client.post("/tts", json={"input": "New."})
            assert "shutting down" in ready.json()["error"]["message"]
            assert (refused.status_code, refused.json()["error"]["code"]) == (
                503,
                "engine_not_ready",
            )
            assert refused.headers["retry-after"]
            assert client.get("/health").status_code == 200
            served.let(100)
            done = waiting.until("response.done")
            assert done["finish_reason"] == "stop"
            assert len(waiting.sound) == BYTES
            with pytest.raises(ConnectionClosed):
                idle.until("anything more")
            assert idle.connection.close_code == 1012  # come back later
        assert len(answer.result(timeout=60).content) == BYTES
        assert served.until_gone() in {0, -signal.SIGTERM}
        log = "\n".join(served.log)
    assert TEXT not in log
    assert KEY not in log  # neither does uvicorn tell them


@contextmanager
def draining(timeout_s: float) -> Iterator[tuple[DrainingServer, httpx.Client, FakeBackend]]:
    """Serve in a thread, which gets no signals: the test hands them over."""
    speaking = FakeBackend(CHUNK_S, block={"wait": "ar"})
    app = create_app(Settings(), fake_engine(speaking))
    config = uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1)
    server = DrainingServer(config, lambda: app.state.services.admission.close(timeout_s))
    running = threading.Thread(target=server.run)
    running.start()
    until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            until(lambda: client.get("/ready").status_code == 200)
            yield server, client, speaking
    finally:
        speaking.let(1000)  # the engine ends at its next frame
        running.join(60)
        assert not running.is_alive()


@pytest.mark.slow
def test_what_does_not_end_is_cut_once_the_time_is_over() -> None:
    with draining(timeout_s=0.2) as (server, client, speaking):
        speaking.let(1)
        body = {"input": TEXT, "response_format": "pcm"}
        with client.stream("POST", "/tts", json=body) as answer:
            pieces = answer.iter_bytes()
            got = len(next(pieces))
            server.handle_exit(signal.SIGTERM, None)
            with pytest.raises(httpx.RemoteProtocolError):
                got += sum(map(len, pieces))
            assert got < BYTES


@pytest.mark.slow
@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_has_not_begun_when_the_time_is_over_is_told_to_come_back(
    streamed: bool,
) -> None:
    with (
        draining(timeout_s=0.2) as (server, client, speaking),
        ThreadPoolExecutor(1) as asking,
    ):
        answer = asking.submit(client.post, "/tts", json={"input": TEXT, "stream": streamed})
        assert speaking.began.wait(20)
        server.handle_exit(signal.SIGTERM, None)
        refused = answer.result(timeout=60)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_not_ready")
        assert refused.headers["retry-after"]


@pytest.mark.slow
def test_a_second_signal_does_not_wait() -> None:
    with (
        draining(timeout_s=3600) as (server, client, speaking),
        ThreadPoolExecutor(1) as asking,
    ):
        answer = asking.submit(client.post, "/tts", json={"input": TEXT})
        assert speaking.began.wait(20)
        server.handle_exit(signal.SIGTERM, None)
        until(lambda: client.get("/ready").status_code == 503)
        assert not server.should_exit
        server.handle_exit(signal.SIGTERM, None)
        speaking.let(1)
        assert answer.exception(60) is not None or answer.result().status_code >= 499
