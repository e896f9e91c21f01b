"""Who comes in: with a key, from an allowed page, not too often. On real sockets."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from app.api.realtime.valle import PROTOCOL
from tests.app.tools.answers import bearer, path_of, shape
from tests.app.tools.live_client import live, refused, serving
from tests.app.tools.serving import until
from tests.fakes import FakeBackend

ALICE, BOB = "alice-0123456789", "bob-0123456789abc"
KEYS = f"alice:{ALICE},bob:{BOB}"
OPEN = {"/health", "/ready", "/docs", "/openapi.json", "/studio", "/studio/main.js"}


@pytest.fixture(scope="module")
def keyed() -> Iterator[httpx.Client]:
    """A client of a server that asks for keys."""
    with serving(api_keys=KEYS) as (client, _):
        yield client


@pytest.mark.slow
def test_every_route_but_the_probes_and_the_documents_asks_for_a_key(keyed) -> None:
    paths = keyed.get("/openapi.json").json()["paths"]
    asked = 0
    for path, methods in paths.items():
        for method in methods:
            answer = keyed.request(method, path)
            assert (answer.status_code == 401) == (path not in OPEN), (method, path)
            asked += answer.status_code == 401
    assert asked >= 8
    assert {keyed.get(path).status_code for path in OPEN} == {200}


@pytest.mark.parametrize(
    "path", ["/nowhere", "/health/", "/health/../tts", "/%68ealth/x", "/METRICS"]
)
def test_a_path_that_nobody_named_asks_for_a_key(keyed, path) -> None:
    assert keyed.get(path).status_code == 401


@pytest.mark.parametrize(
    "authorization",
    [
        f"Bearer {ALICE[:-1]}",
        f"Bearer {ALICE}{ALICE}",
        f"Bearer {ALICE},{BOB}",
        f"Bearer {ALICE.upper()}",
        f"Basic {ALICE}",
        ALICE,
        "Bearer",
        "Bearer " + "a" * 8000,
        b"Bearer \xff\xfe",
    ],
)
def test_a_wrong_key_is_a_401_that_does_not_repeat_it(keyed, authorization) -> None:
    answer = keyed.post("/tts", json={"input": "Hi."}, headers={"authorization": authorization})
    assert answer.status_code == 401
    assert shape(answer)["code"] == "invalid_api_key"
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert ALICE not in answer.text


def test_a_request_with_a_known_key_is_answered(keyed) -> None:
    for sent in (f"Bearer {ALICE}", f"Bearer {BOB}", f"bearer  {ALICE}"):
        answer = keyed.post("/tts", json={"input": "Hi."}, headers={"authorization": sent})
        assert answer.status_code == 200


def test_a_response_is_told_to_its_owner_alone(keyed) -> None:
    made = keyed.post("/tts", json={"input": "Hi."}, headers=bearer(ALICE))
    path = path_of(made)
    for wanted in (path, path + "/audio"):
        assert keyed.get(wanted, headers=bearer(ALICE)).status_code == 200
        hidden = keyed.get(wanted, headers=bearer(BOB))
        assert hidden.status_code == 404
        unknown = keyed.get("/v1/audio/speech/nothing", headers=bearer(BOB))
        assert shape(hidden) == shape(unknown)  # nobody learns that there is one


def test_a_websocket_takes_a_key_as_header_or_subprotocol_and_never_repeats_it(keyed) -> None:
    with live(keyed, additional_headers=bearer(ALICE)) as session:
        assert session.say("Hi.")["finish_reason"] == "stop"
        response = session.seen[-1]["response_id"]
    found = keyed.get(f"/v1/audio/speech/{response}", headers=bearer(ALICE))
    assert found.status_code == 200
    assert keyed.get(f"/v1/audio/speech/{response}", headers=bearer(BOB)).status_code == 404
    with live(keyed, subprotocols=[f"valle.key.{BOB}", PROTOCOL]) as session:
        assert session.connection.subprotocol == PROTOCOL
        assert session.connection.response is not None
        assert BOB not in str(session.connection.response.headers)


def test_a_websocket_without_a_known_key_is_refused(keyed) -> None:
    assert refused(keyed)[0] == 401
    assert refused(keyed, additional_headers=bearer(ALICE[:-1]))[0] == 401
    assert refused(keyed, subprotocols=["valle.key.wrong", PROTOCOL])[0] == 401
    assert refused(keyed, subprotocols=[ALICE, PROTOCOL])[0] == 401


def test_without_keys_nobody_is_asked(toy_server) -> None:
    assert toy_server.get("/v1/models", headers=bearer("anything")).status_code == 200
    assert "securitySchemes" not in toy_server.get("/openapi.json").json()["components"]


def test_the_document_tells_how_a_key_is_sent(keyed) -> None:
    document = keyed.get("/openapi.json").json()
    (scheme,) = document["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert document["paths"]["/tts"]["post"]["security"]
    assert "401" in document["paths"]["/tts"]["post"]["responses"]


def test_a_key_has_its_rate_and_the_probes_are_not_counted() -> None:
    with serving(api_keys=KEYS, rate_per_minute=3) as (client, _):
        for _ in range(3):
            assert client.get("/v1/models", headers=bearer(ALICE)).status_code == 200
        beyond = client.get("/v1/models", headers=bearer(ALICE))
        assert beyond.status_code == 429
        assert shape(beyond)["code"] == "rate_limit_exceeded"
        assert "3 requests a minute" in shape(beyond)["message"]
        assert 1 <= int(beyond.headers["retry-after"]) <= 61
        assert refused(client, additional_headers=bearer(ALICE))[0] == 429
        assert client.get("/v1/models", headers=bearer(BOB)).status_code == 200
        assert client.get("/v1/models").status_code == 401  # and is nobody's
        for _ in range(5):
            assert client.get("/health").status_code == 200
            assert client.get("/metrics", headers=bearer(ALICE)).status_code == 200
        assert client.get("/metrics").status_code == 401


def test_without_keys_an_address_has_its_rate() -> None:
    with serving(rate_per_minute=2) as (client, _):
        statuses = [client.get("/v1/models").status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


def test_responses_of_a_websocket_are_counted() -> None:
    with serving(rate_per_minute=2) as (client, _), live(client) as session:
        assert session.say("Hi.")["finish_reason"] == "stop"
        session.send("response.create")
        error = session.until("error")["error"]
        assert error["code"] == "rate_limit_exceeded"
        assert "retry in" in error["message"]


def test_a_key_has_only_so_much_in_work() -> None:
    speaking = FakeBackend(block={"wait": "ar"})
    limits: dict[str, Any] = {"api_keys": KEYS, "max_concurrent_per_key": 1}
    with serving(speaking, **limits) as (client, _), ThreadPoolExecutor() as asking:
        wanted, headers = {"input": "wait"}, bearer(ALICE)
        answer = asking.submit(client.post, "/tts", json=wanted, headers=headers)
        assert speaking.began.wait(20)
        beyond = client.post("/tts", json={"input": "Hi."}, headers=bearer(ALICE))
        assert beyond.status_code == 429
        assert int(beyond.headers["retry-after"]) >= 1
        assert client.get("/v1/models", headers=bearer(ALICE)).status_code == 200
        with live(client, additional_headers=bearer(ALICE)) as session:
            session.send("response.create")
            assert session.until("error")["error"]["code"] == "rate_limit_exceeded"
        speaking.let(4)
        assert answer.result().status_code == 200
        body = {"input": "a"}  # a place is given back after the last byte
        until(lambda: client.post("/tts", json=body, headers=bearer(ALICE)).status_code == 200)


@pytest.mark.parametrize("ending", ["done", "cancel", "leave"])
def test_a_response_of_a_websocket_is_work_until_it_ends(ending) -> None:
    with serving(max_concurrent_per_key=1) as (client, _):
        with live(client) as session:
            session.create()
            session.text("Hi.")
            assert client.post("/tts", json={"input": "Hi."}).status_code == 429
            if ending == "done":
                session.end()
                session.until("response.done")
            elif ending == "cancel":
                session.send("response.cancel")
                session.until("response.done")
            if ending != "leave":
                until(lambda: client.post("/tts", json={"input": "Hi."}).status_code == 200)
        until(lambda: client.post("/tts", json={"input": "Hi."}).status_code == 200)


@pytest.mark.parametrize("origin", ["https://bad.example", "null", "http://[", "file://"])
def test_a_foreign_page_can_do_nothing(origin) -> None:
    speaking = FakeBackend(block={"wait": "ar"})
    with serving(speaking, origins="https://good.example") as (client, _):
        began = len(speaking.spoken)
        answer = client.post("/tts", json={"input": "Hi."}, headers={"origin": origin})
        assert answer.status_code == 403
        assert shape(answer)["param"] == "origin"
        assert "access-control-allow-origin" not in answer.headers
        assert client.delete("/v1/audio/voices/a", headers={"origin": origin}).status_code == 403
        assert refused(client, origin=origin)[0] == 403
        assert len(speaking.spoken) == began
        for allowed in ("https://good.example", str(client.base_url).rstrip("/"), None):
            with live(client, origin=allowed) as session:
                assert session.say("Hi.")["finish_reason"] == "stop"


@pytest.mark.parametrize("name", ["a b", "é", "a" * 201, "a;b", "<x>", "a\tb", '"a"'])
def test_a_request_id_that_is_no_name_is_refused(toy_server, name) -> None:
    headers = {"x-request-id": name.encode()}
    answer = toy_server.get("/v1/models", headers=headers)
    assert answer.status_code == 422
    assert shape(answer)["param"] == "x-request-id"


def test_a_request_id_of_a_proxy_is_taken_and_the_answer_has_ours(toy_server) -> None:
    for name in ("b0b2-4d", "a" * 200, "Root=1-67:2/x+y@z_.", ""):
        answer = toy_server.get("/v1/models", headers={"x-request-id": name})
        assert answer.status_code == 200
        assert len(answer.headers["x-request-id"]) == 32


def test_a_websocket_has_a_request_id_too(toy_server) -> None:
    with live(toy_server) as session:
        assert session.connection.response is not None
        assert len(session.connection.response.headers["x-request-id"]) == 32
