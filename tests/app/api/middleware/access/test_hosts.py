"""A page of elsewhere that has its name lead here (DNS rebinding) can do nothing without keys."""

import socket
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from app.api.middleware.access.hosts import Hosts
from app.main import create_app
from app.settings import Settings
from tests.app.tools.answers import shape
from tests.app.tools.live_client import refused, url_of
from tests.app.tools.serving import connected, served
from tests.fakes import fake_engine

BODY = {"input": "Hi."}


HERE = socket.gethostname()
OURS = (
    None, "", "localhost", "LocalHost:8000", "localhost.", "a.localhost:1", "127.0.0.1",
    "192.168.1.7:8000", "[::1]:8000", "[fe80::1]", "tts.lan:8000", HERE, f"{HERE.upper()}:8000",
)  # fmt: skip
"""Addresses, loopback, this machine, and what it listens to."""

OTHERS = (
    "evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example",
    "evil-localhost", "evil.example@localhost", "localhost:8000:8000", "2130706433", "::1", "a b",
)  # fmt: skip
LISTED = (
    ("gpuhost", "gpuhost:8000", True),
    (" GPUHOST , b.example", "gpuhost", True),
    ("*.a.example", "tts.a.example:80", True),
    ("*.a.example", "a.example", False),
    ("*.a.example", "a.example.evil", False),
    ("*", "evil.example", True),
    (",", "evil.example", False),
)


@pytest.mark.parametrize(
    ("listed", "host", "known"),
    [*(("", one, True) for one in OURS), *(("", one, False) for one in OTHERS), *LISTED],
)
def test_its_own_names_are_known_and_those_that_an_operator_lists(listed, host, known) -> None:
    headers = [] if host is None else [(b"host", host.encode())]
    asked = HTTPConnection({"type": "http", "headers": headers})
    assert Hosts("tts.lan", listed).allow(asked) is known


def test_a_request_with_two_host_headers_is_refused() -> None:
    headers = [(b"host", b"localhost"), (b"host", b"evil.example")]
    assert not Hosts("", "").allow(HTTPConnection({"type": "http", "headers": headers}))


REBOUND: list[dict[str, str]] = [
    {"host": "evil.example", "origin": "http://evil.example"},
    {"host": "evil.example:8000", "origin": "http://evil.example:8000"},
    {"host": "evil.example"},
    {"host": "", "origin": "null"},
    {"origin": "null"},
    {"host": "evil.example", "origin": "null"},
]


@pytest.mark.parametrize("headers", REBOUND, ids=str)
def test_a_rebound_page_is_refused(client, backend, headers) -> None:
    began = len(backend.spoken)
    for method, path in (("POST", "/tts"), ("GET", "/v1/audio/voices"), ("GET", "/metrics")):
        answer = client.request(method, path, headers=headers, json=BODY)
        assert answer.status_code == 403, (path, headers)
        assert shape(answer)["param"] in {"host", "origin"}
    assert len(backend.spoken) == began


def test_a_rebound_page_opens_no_session(client) -> None:
    url = url_of(client).replace(client.base_url.host, "evil.example")
    for origin in ("http://evil.example", None):
        with connected(client) as connection:
            assert refused(client, uri=url, sock=connection, origin=origin)[0] == 403


def test_probes_answer_to_every_name(client) -> None:
    for path in ("/health", "/ready"):
        assert client.get(path, headers={"host": "pod.cluster.local"}).status_code == 200


def test_a_name_that_is_listed_is_served_and_its_pages_too() -> None:
    headers = {"host": "gpuhost:8000", "origin": "http://gpuhost:8000"}
    with served(create_app(Settings(allowed_hosts="gpuhost"), fake_engine())) as client:
        assert client.post("/tts", json=BODY, headers=headers).status_code == 200
        refusal = client.post("/tts", json=BODY, headers={"host": "other"})
        assert "TTS_ALLOWED_HOSTS" in shape(refusal)["message"]


def test_where_keys_are_asked_for_any_name_will_do() -> None:
    headers: dict[str, Any] = {"host": "tts.example"}
    with served(create_app(Settings(api_keys="a" * 16), fake_engine())) as client:
        assert client.get("/v1/models", headers=headers).status_code == 401
        headers["authorization"] = "Bearer " + "a" * 16
        assert client.get("/v1/models", headers=headers).status_code == 200
