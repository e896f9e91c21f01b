"""The service on a cluster of Ray on this machine: streams, a death, a reader that stalls."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from app.audio.containers import pcm
from app.commands.bench.listeners import ReceivedSpeech, receive
from lab.benchmarks.cluster.card import codes_of, sound_of
from lab.benchmarks.cluster.streams import TEXT, JobLog, run_clients
from lab.benchmarks.harness.http_client import open_client
from tests.conftest import ROOT

pytest.importorskip("ray", reason="needs the package ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BIN = Path(sys.executable).parent
URL = "http://127.0.0.1:8000"  # Ray's; there is one cluster of a machine


def replicas() -> list[psutil.Process]:
    """The replicas, the oldest first: another may be too young to have work."""
    found = [
        one
        for one in psutil.process_iter(["cmdline"])
        if " ".join(one.info["cmdline"] or []).startswith("ray::ServeReplica")
    ]
    return sorted(found, key=psutil.Process.create_time)


def until(condition: Callable[[], object], timeout_s: float = 120) -> None:
    ends_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < ends_s, "it never came true"
        time.sleep(0.2)


def ready() -> bool:
    try:
        return httpx.get(f"{URL}/ready", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two replicas with cards that keep time."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 8000)) == 0:
            pytest.skip("something listens on port 8000, which Ray's proxy takes")
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "deploy.ray.proxy:middlewares",
        "RAY_SERVE_PROXY_USE_GRPC": "1",
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # however busy the machine is
        "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
        "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
        "TTS_SLOTS": "4",
        "TTS_STALL_TIMEOUT_S": "1",
    }

    def run(command: str) -> None:
        subprocess.run(command.split(), env=environment, cwd=ROOT, check=True, timeout=200)

    run("ray start --head --num-cpus 8 --include-dashboard=false --disable-usage-stats")
    try:
        run(
            "serve run --non-blocking deploy.ray.deployment:build replicas=2 cpus=0.5"
            " factory=lab.benchmarks.cluster.card:create_app"
        )
        until(ready)
        yield
    finally:
        run("ray stop --force")


def test_streams_and_websockets_are_whole(cluster) -> None:
    outcomes = asyncio.run(run_clients(URL, 4, 6))
    counts = outcomes.counts
    assert counts["whole"] == counts["http"] + counts["live"], outcomes.causes
    assert counts["live"] > 0


def test_an_answer_has_one_id(cluster) -> None:
    answer = httpx.post(f"{URL}/tts", json={"input": "Hi."}, timeout=60)
    assert len(answer.headers.get_list("x-request-id")) == 1
    assert answer.headers["x-request-id"] != "mine"


def test_of_a_replica_that_dies_every_answer_is_seen_to_be_broken(cluster) -> None:
    async def speak_and_kill() -> JobLog:
        speaking = asyncio.create_task(run_clients(URL, 8, 12))
        await asyncio.sleep(5)
        replicas()[0].send_signal(signal.SIGKILL)
        return await speaking

    outcomes = asyncio.run(speak_and_kill())
    assert outcomes.counts["short"] == 0, outcomes.causes
    assert outcomes.counts["broken"] > 0
    until(lambda: len(replicas()) == 2 and ready())


def test_what_a_replica_that_dies_had_not_answered_is_spoken_by_another(cluster) -> None:
    async def speak_and_kill() -> list[ReceivedSpeech]:
        async with open_client(URL) as client:
            # Twice as many as rows: half of them wait.
            asked = [receive(client, TEXT, seed=seed) for seed in range(16)]
            speaking = asyncio.gather(*asked)
            await asyncio.sleep(1)
            replicas()[0].send_signal(signal.SIGKILL)
            return await speaking

    got = asyncio.run(speak_and_kill())
    assert {one.status for one in got} == {200}
    broken = [one for one in got if not one.ok]
    assert 0 < len(broken) <= 4, "more than the rows of a replica"
    assert all(one.sound for one in broken)
    for seed, one in enumerate(got):
        assert not one.ok or one.sound == pcm(sound_of(codes_of(seed, len(TEXT))))
    until(lambda: len(replicas()) == 2 and ready())


def test_a_reader_that_takes_nothing_is_cut_and_little_is_generated(cluster) -> None:
    subprocess.run(
        [
            *(BIN / "serve", "run", "--non-blocking", "deploy.ray.deployment:build", "version=2"),
            "factory=lab.benchmarks.cluster.card:fast_app",
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TTS_STALL_TIMEOUT_S": "1"},
        cwd=ROOT,
        check=True,
        timeout=200,
    )
    until(lambda: len(replicas()) == 1)
    command = [sys.executable, "-m", "lab.benchmarks.cluster.streams", "slow", "--seconds", "15"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    row = json.loads(told.stdout.splitlines()[-1])
    assert row["bytes_generated"] < row["bytes_of_speech"] / 2
    assert (row["looks_whole"], row["error"]) == (False, "reader_stalled")
