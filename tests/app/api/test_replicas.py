"""Several services over one Redis, asked over HTTP: what one knows the others know."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served, until
from tests.fakes import FakeBackend, fake_engine

HI = {"input": "Hi."}
KEYS = {"alice": "alice-0123456789", "bob": "bob-0123456789abc"}


@pytest.fixture
def replicas(redis_server):
    """Return a function that starts services, and gives a client of each."""
    with ExitStack() as running:

        def start(number: int, **settings) -> list[httpx.Client]:
            chosen = Settings(state=redis_server.url, **settings)
            engines = [fake_engine(FakeBackend(), slots=4, max_queue=64) for _ in range(number)]
            return [running.enter_context(served(create_app(chosen, one))) for one in engines]

        yield start


def headers(who: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[who]}"}


@pytest.mark.slow
def test_reports_and_replays_are_found_at_any_replica_by_their_owner(replicas) -> None:
    clients = replicas(3, api_keys=",".join(f"{name}:{key}" for name, key in KEYS.items()))
    every = [client.post("/tts", json=HI, headers=headers("alice")) for client in clients]
    for client in clients:
        for made in every:
            one = made.headers["x-request-id"]
            path = f"/v1/audio/speech/{one}"
            while client.get(path, headers=headers("alice")).status_code != 200:
                time.sleep(0.01)  # it is being written
            told = client.get(path, headers=headers("alice")).json()
            assert (told["id"], told["codes_sha256"]) == (one, made.headers["x-codes-sha256"])
            again = client.get(f"{path}/audio", headers=headers("alice"))
            assert (again.status_code, again.content[:4]) == (200, b"RIFF")
            for rest in ("", "/audio"):
                assert client.get(path + rest, headers=headers("bob")).status_code == 404


@pytest.mark.slow
def test_a_minute_has_so_many_requests_whoever_is_asked(replicas) -> None:
    clients = replicas(4, rate_per_minute=60)
    statuses: Counter[int] = Counter()

    def ask(client: httpx.Client) -> None:
        for _ in range(50):
            answer = client.get("/v1/models")
            statuses[answer.status_code] += 1
            assert answer.status_code == 200 or 1 <= int(answer.headers["retry-after"]) <= 61

    with ThreadPoolExecutor() as threads:
        list(threads.map(ask, clients))
    assert statuses == {200: 60, 429: 140}


@pytest.mark.slow
@pytest.mark.parametrize("fail", ["open", "closed"])
def test_no_request_is_lost_when_redis_is_killed_and_comes_back(
    replicas, redis_server, fail
) -> None:
    clients = replicas(2, max_concurrent_per_key=50, state_fail=fail)
    statuses: Counter[int] = Counter()
    stop = threading.Event()

    def ask(client: httpx.Client) -> None:
        while not stop.is_set():
            answer = client.post("/tts", json=HI)
            statuses[answer.status_code] += 1
            if answer.status_code == 503:
                assert answer.json()["error"]["code"] == "state_unavailable"
                assert answer.headers["retry-after"] == "1"

    threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    until(lambda: statuses[200] >= 10)
    redis_server.kill()
    away = f"redis away, limits {fail}"
    until(lambda: all(c.get("/health").json()["shared_state"] == away for c in clients))
    assert "tts_state_up 0.0" in clients[0].get("/metrics").text
    at = Counter(statuses)
    until(lambda: sum(statuses.values()) >= sum(at.values()) + 20)
    redis_server.start()
    until(lambda: all(c.get("/health").json()["shared_state"] == "redis" for c in clients))
    assert "tts_state_up 1.0" in clients[0].get("/metrics").text
    served_before = statuses[200]
    until(lambda: statuses[200] > served_before + 10)
    stop.set()
    for thread in threads:
        thread.join()
    assert set(statuses) == ({200} if fail == "open" else {200, 503})
