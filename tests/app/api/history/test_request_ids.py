"""A request that is sent twice with one id is spoken once."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served, until
from tests.fakes import FakeBackend, fake_engine

KEYS = {"alice": "alice-0123456789", "bob": "bob-0123456789abc"}


@pytest.fixture(params=["memory", "redis"])
def two(request):
    """Clients of a service and the models behind them: one process, or two with a Redis."""
    keys = ",".join(f"{name}:{key}" for name, key in KEYS.items())
    backends = [FakeBackend(block={"wait": "ar"}, fail_at={"break": "ar"}) for _ in range(2)]
    if request.param == "memory":
        app = create_app(Settings(once_per_id=True, api_keys=keys), fake_engine(backends[0]))
        with served(app) as client:
            yield [client, client], backends
        return
    url = request.getfixturevalue("redis_server").url
    settings = Settings(once_per_id=True, api_keys=keys, state=url)
    apps = [create_app(settings, fake_engine(backend)) for backend in backends]
    with served(apps[0]) as here, served(apps[1]) as there:
        yield [here, there], backends


def say(
    client: httpx.Client, text="Hello.", request_id="mine", who="alice", **fields
) -> httpx.Response:
    headers = {"x-request-id": request_id, "authorization": f"Bearer {KEYS[who]}"}
    return client.post("/tts", json={"input": text} | fields, headers=headers)


def spoken(backends) -> int:
    return sum(len(backend.spoken) for backend in backends)


def repeated(client: httpx.Client, first: httpx.Response, **fields) -> httpx.Response:
    """Send it again; the answer of the first may not be stored yet."""
    again = say(client, **fields)
    while again.status_code == 409:
        again = say(client, **fields)
    assert again.headers["x-repeats"] == first.headers["x-request-id"]
    assert again.headers["x-request-id"] != first.headers["x-request-id"]
    return again


def test_the_second_is_answered_with_the_speech_of_the_first(two) -> None:
    (here, there), backends = two
    first = say(here)
    again = repeated(there, first)
    assert again.status_code == 200
    assert again.headers["x-codes-sha256"] == first.headers["x-codes-sha256"]
    assert spoken(backends) == 1


def test_a_streamed_request_repeated_by_its_id_is_streamed_again_and_spoken_once(two) -> None:
    (here, there), backends = two
    wanted = {"stream_format": "sse", "response_format": "pcm"}
    first = say(here, **wanted)
    assert first.text.count("speech.audio.done") == 1
    again = repeated(there, first, **wanted)
    assert again.headers["content-type"].startswith("text/event-stream")
    assert again.text.count("speech.audio.delta") == again.text.count("speech.audio.done") == 1
    assert spoken(backends) == 1


def test_another_text_another_owner_and_no_id_are_no_repetition(two) -> None:
    (here, there), backends = two
    assert say(here).status_code == 200
    refused = say(there, "Other.")
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "x-request-id")
    assert say(there, who="bob").status_code == 200
    assert say(there, request_id="").status_code == 200
    assert say(there, request_id="").status_code == 200
    assert spoken(backends) == 4


def test_one_that_is_in_progress_is_to_be_asked_for_later(two) -> None:
    (here, there), backends = two
    with ThreadPoolExecutor() as asking:
        answer = asking.submit(say, here, "wait")
        assert backends[0].began.wait(20)
        refused = say(there, "wait")
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (409, "request_in_progress")
        assert refused.headers["retry-after"] == "1"
        backends[0].let(4)
    repeated(there, answer.result(), text="wait")
    assert spoken(backends) == 1


@pytest.mark.parametrize("text", ["break it", " "])
def test_one_that_failed_may_be_tried_again(two, text) -> None:
    (here, there), _ = two
    failed = say(here, text).status_code
    assert failed in {422, 500}
    until(lambda: say(there, text).status_code != 409)
    assert say(here, text).status_code in {failed, 409}


def test_unless_it_is_set_an_id_means_nothing() -> None:
    backend = FakeBackend()
    with served(create_app(Settings(), fake_engine(backend))) as client:
        for text in ("One.", "One.", "Two."):
            headers = {"x-request-id": "mine"}
            assert client.post("/tts", json={"input": text}, headers=headers).status_code == 200
    assert len(backend.spoken) == 3
