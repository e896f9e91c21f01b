"""Several cards of one host behind HAProxy."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import httpx
import pytest

from app.api.middleware.readers import longest_wait_s
from app.main import create_app
from app.settings import Settings
from tests.app.tools.live_client import live
from tests.app.tools.process import Served, process
from tests.app.tools.serving import free_port, served, until
from tests.conftest import ROOT
from tests.deploy.container_files import compose, last
from tests.fakes import FakeBackend, fake_engine

WAITING = "wait for it"
CONFIG = ROOT / "deploy" / "balancer" / "haproxy.cfg"
needs_haproxy = pytest.mark.skipif(shutil.which("haproxy") is None, reason="no haproxy")


def cards() -> dict[str, Any]:
    services: dict[str, Any] = compose("docker-compose.cards.yml")["services"]
    return services


def test_each_replica_has_a_card_of_its_own_and_a_place_in_the_balancer() -> None:
    services = cards()
    laid_over = compose("docker-compose.yml", "docker-compose.cards.yml")["services"]
    replicas = [name for name in services if name.startswith("tts")]
    taken = []
    for name in replicas:
        (device,) = services[name]["deploy"]["resources"]["reservations"]["devices"]
        taken += device["device_ids"]
        assert not laid_over[name].get("ports")
        assert services[name]["environment"]["TTS_STATE"].startswith("redis://redis:")
    assert taken == [str(number) for number in range(len(replicas))]
    told = services["balancer"]["environment"]
    assert [told[f"CARD_{number}"] for number in range(len(replicas))] == [
        f"{name}:8000" for name in replicas
    ]
    asked = set(re.findall(r"\$\{(\w+)\}", CONFIG.read_text()))
    assert asked == set(told)


def test_replicas_of_one_card_share_its_memory_and_its_daemon_but_no_processor() -> None:
    files = ("docker-compose.yml", "docker-compose.cards.yml", "docker-compose.shared-card.yml")
    merged = compose(*files)
    services = merged["services"]
    replicas = [services[name] for name in cards() if name.startswith("tts")]
    daemon = services["mps"]
    processors = list[str]()
    for one in (daemon, *replicas):
        (device,) = one["deploy"]["resources"]["reservations"]["devices"]
        assert device["device_ids"] == ["0"]
        mounts = dict(volume.split(":")[:2] for volume in one["volumes"])
        assert mounts["mps"] == daemon["environment"]["CUDA_MPS_PIPE_DIRECTORY"]
        assert one["environment"]["CUDA_MPS_PIPE_DIRECTORY"] == mounts["mps"]
    for one in replicas:
        assert one["ipc"] == "service:mps"
        assert one["depends_on"]["mps"]["condition"] == "service_healthy"
        assert one["environment"]["TTS_STATE"].startswith("redis://redis:")
        processors += re.sub(r"\$\{\w+:-(.*)\}", r"\1", one["cpuset"]).split(",")
    assert len(processors) == len(set(processors)) == 2 * len(replicas)
    shares = [float(one["environment"]["TTS_GPU_MEMORY_UTILIZATION"]) for one in replicas]
    assert 0.8 <= sum(shares) < 0.95, "CUDA itself takes some"
    assert daemon["user"] == last("USER"), "a server of MPS has the clients of one user"
    assert daemon["ipc"] == "shareable"


def test_the_balancer_waits_longer_than_the_service() -> None:
    settings, config = Settings(), CONFIG.read_text()
    waits = {name: int(seconds) for name, seconds in re.findall(r"timeout (\w+) (\d+)s", config)}
    assert waits["client"] > longest_wait_s(settings.stall_timeout_s)
    assert waits["server"] > settings.request_timeout_s
    asked_again = re.findall(r"retry-on (.+)", config)
    assert asked_again == ["conn-failure empty-response 503"], "none of which anything was heard"


@pytest.fixture
def balanced(tmp_path: Path):
    """A client of HAProxy before two fakes, and the fakes."""
    backends = [FakeBackend(0.01, block={"wait": "ar"}) for _ in range(2)]
    apps = [create_app(Settings(), fake_engine(one, slots=4)) for one in backends]
    with (
        served(apps[0]) as first,
        served(apps[1]) as second,
        haproxy(str(first.base_url), str(second.base_url)) as client,
    ):
        yield client, backends


@contextmanager
def haproxy(first: str, second: str) -> Iterator[httpx.Client]:
    """Run HAProxy before two servers; give a client of it."""
    port = free_port()
    places = {"CARD_0": first[7:], "CARD_1": second[7:], "PORT": str(port)}
    command = ["haproxy", "-db", "-f", str(CONFIG)]
    with (
        subprocess.Popen(command, env=places | {"PATH": "/usr/sbin:/usr/bin"}) as started,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        try:
            until(lambda: _ready(client))
            yield client
        finally:
            started.terminate()


@contextmanager
def replicas(folder: Path, **settings: object) -> Iterator[tuple[httpx.Client, Served, Served]]:
    """Run two servers in processes of their own behind HAProxy; give a client of it, and them."""
    first, second = folder / "first", folder / "second"
    first.mkdir()
    second.mkdir()
    with (
        process(first, **settings) as one,
        process(second, **settings) as other,
        haproxy(str(one.client.base_url), str(other.client.base_url)) as client,
    ):
        yield client, one, other


def running(*replicas: Served) -> list[int]:
    return [one.client.get("/health").json()["running"] for one in replicas]


def are_running(jobs: int, *replicas: Served) -> bool:
    return sum(running(*replicas)) == jobs


def _ready(client: httpx.Client) -> bool:
    try:
        return client.get("/ready").status_code == 200
    except httpx.TransportError:
        return False


@needs_haproxy
def test_streams_pass_as_they_come_and_the_least_busy_replica_gets_the_next(balanced) -> None:
    client, backends = balanced
    asked = {"input": WAITING, "stream": True, "response_format": "pcm"}
    for backend in backends:
        backend.let(1)
    with client.stream("POST", "/tts", json=asked) as one:
        busy = next(backend for backend in backends if backend.spoken)
        for _ in range(4):
            assert client.post("/tts", json={"input": "Hi."}).status_code == 200
        idle = next(backend for backend in backends if backend is not busy)
        assert (len(busy.spoken), len(idle.spoken)) == (1, 4)
        busy.let(len(WAITING))
        assert one.read()


@needs_haproxy
def test_websockets_pass(balanced) -> None:
    client, _ = balanced
    with live(client) as session:
        session.create()
        session.send("input_text.append", sequence=0, text="Hello.")
        session.send("input_text.end", sequence=1)
        assert session.until("response.done")["finish_reason"] == "stop"


def post_late(client: httpx.Client, body: bytes) -> httpx.Response:
    """Send a body some time after its head, as most clients do."""

    def late() -> Iterator[bytes]:
        sleep(0.02)
        yield body

    headers = {"content-type": "application/json", "content-length": str(len(body))}
    return client.post("/tts", content=late(), headers=headers)


@pytest.mark.slow
@needs_haproxy
def test_a_replica_that_drains_ends_its_stream_and_gets_no_other(tmp_path: Path) -> None:
    with replicas(tmp_path) as (client, first, second):
        asked = {"input": WAITING, "stream": True, "response_format": "pcm"}
        first.let(1)
        second.let(1)
        with client.stream("POST", "/tts", json=asked) as one:
            parts = one.iter_raw()
            received = len(next(parts))
            busy, idle = (first, second) if running(first)[0] else (second, first)
            busy.process.terminate()
            until(lambda: busy.client.get("/ready").status_code == 503)
            answers = [client.post("/tts", json={"input": "Hi."}) for _ in range(20)]
            assert {answer.status_code for answer in answers} == {200}
            assert idle.client.get("/ready").status_code == 200
            busy.let(len(WAITING))
            received += sum(len(part) for part in parts)
        assert received == len(WAITING) * 4800
        assert busy.until_gone() == 0


@pytest.mark.slow
@needs_haproxy
def test_what_a_killed_replica_had_not_answered_is_spoken_by_another(tmp_path: Path) -> None:
    with replicas(tmp_path) as (client, first, second), ThreadPoolExecutor() as threads:
        asked = {"input": WAITING, "stream": True, "response_format": "pcm"}
        answer = threads.submit(client.post, "/tts", json=asked)
        until(lambda: sum(running(first, second)) == 1)
        busy, idle = (first, second) if running(first)[0] else (second, first)
        busy.process.kill()
        until(lambda: idle.client.get("/health").json()["running"] == 1)
        idle.let(len(WAITING))
        assert answer.result().status_code == 200
        assert len(answer.result().content) == len(WAITING) * 4800


@pytest.mark.slow
@needs_haproxy
def test_a_replica_that_drains_and_has_least_to_do_refuses_nobody(tmp_path: Path) -> None:
    """Until it is seen to drain it is asked first, and another one after it."""
    with (
        replicas(tmp_path, slots=4) as (client, first, second),
        ThreadPoolExecutor() as threads,
    ):
        spoken = []
        for number in range(3):
            spoken.append(threads.submit(client.post, "/tts", json={"input": WAITING}))
            until(partial(are_running, number + 1, first, second))
        assert sorted(running(first, second)) == [1, 2]
        drained = (first, second)[running(first, second).index(1)]
        drained.process.terminate()
        until(lambda: drained.client.get("/ready").status_code == 503)
        answers = [post_late(client, b'{"input": "Hi."}') for _ in range(20)]
        for one in (first, second):
            one.let(3 * len(WAITING))
        assert {answer.status_code for answer in answers} == {200}
        assert {one.result().status_code for one in spoken} == {200}
