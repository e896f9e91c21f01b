"""Bodies that are too large or too slow, sent over real sockets byte by byte."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from app.api.middleware import body as body_limits
from app.api.requests import MAX_VALUES, check_json_size
from app.engine.errors import InvalidRequest
from app.main import create_app, gate_rules
from app.settings import Settings
from tests.app.tools.answers import raw
from tests.app.tools.serving import connected, served
from tests.fakes import FakeBackend, fake_engine

LIMITS = Settings(max_body_bytes=2048, max_upload_bytes=8192, body_timeout_s=0.3)
HEAD = (
    b"POST /tts HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Connection: keep-alive\r\n"
)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with served(create_app(LIMITS, fake_engine())) as one:
        yield one


def sent(client: httpx.Client, *parts: bytes) -> tuple[int, bytes]:
    """Send bytes and no end; return status and body once the server has closed."""
    head, _, body = raw(client, *parts).partition(b"\r\n\r\n")
    return int(head.split()[1]), body


CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("parts", "status", "code"),
    [
        ((b"Content-Length: 100\r\n\r\n",), 408, "body_timeout"),
        ((b"Content-Length: 100\r\n\r\n", b'{"input"'), 408, "body_timeout"),
        ((CHUNKED, b"1\r\n{\r\n"), 408, "body_timeout"),
        ((b"Content-Length: 2049\r\n\r\n",), 413, "body_too_large"),
        ((CHUNKED, (b"400\r\n" + b" " * 0x400 + b"\r\n") * 3), 413, "body_too_large"),
    ],
)
def test_a_body_that_does_not_come_or_is_too_large_is_not_waited_for(
    client, parts, status, code
) -> None:
    told, body = sent(client, HEAD, *parts)
    assert (told, json.loads(body)["error"]["code"]) == (status, code)
    assert client.post("/tts", json={"input": "Hi."}).status_code == 200


def test_the_largest_body_is_taken(client) -> None:
    body = b'{"input": "Hi."}'.ljust(2048)
    headers = {"content-type": "application/json"}
    assert client.post("/tts", content=body, headers=headers).status_code == 200
    assert client.post("/tts", content=body + b" ", headers=headers).status_code == 413


def test_the_time_for_a_body_is_none_for_its_speech() -> None:
    speaking = FakeBackend(block={"wait": "ar"})
    app = create_app(Settings(body_timeout_s=0.1), fake_engine(speaking))
    with served(app) as client, ThreadPoolExecutor(1) as asking:
        answer = asking.submit(client.post, "/tts", json={"input": "wait"})
        assert speaking.began.wait(20)
        time.sleep(0.3)
        speaking.let(4)
        assert answer.result().status_code == 200


@pytest.mark.parametrize(
    "lines",
    [
        b"X-Huge: " + b"a" * 200_000 + b"\r\n\r\n",
        b"".join(b"X-%d: a\r\n" % number for number in range(20_000)) + b"\r\n",
        b"X-Bad\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked, identity\r\n\r\nhello",
    ],
)
def test_headers_that_cannot_be_are_refused_and_the_next_request_works(client, lines) -> None:
    try:
        status, _ = sent(client, HEAD, lines)
    except ConnectionError:  # it closed while we were still talking
        status = 400
    assert status in {400, 501}
    assert client.get("/health").status_code == 200


@pytest.mark.slow
def test_a_body_that_comes_too_slowly_is_given_up_long_before_its_time_is_over(
    monkeypatch,
) -> None:
    """Whoever sends ten bytes and stops would else hold a place for as long as a body may take."""
    monkeypatch.setattr(body_limits, "PATIENCE_S", 0.3)
    with served(create_app(Settings(body_timeout_s=3600), fake_engine())) as client:
        status, body = sent(client, HEAD, b"Content-Length: 1000\r\n\r\n", b"a" * 10)
        assert status == 408
        assert "less than 1024 bytes per second" in json.loads(body)["error"]["message"]
        body = b'{"input": "Hi."}'.ljust(2000)
        with connected(client) as connection:
            connection.sendall(HEAD + b"Content-Length: 2000\r\n\r\n" + body[:1900])
            time.sleep(0.6)  # what it has sent buys it time
            connection.sendall(body[1900:])
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("path", "label", "status"),
    [
        ("/v1/audio/voices", "multipart/form-data; boundary=x", 422),
        ("/v1/audio/codes", "multipart/form-data; boundary=x", 415),
        ("/v1/audio/codes", "text/plain", 415),
        ("/v1/audio/codes", "audio/wav", 200),
        ("/v1/audio/codes", "application/octet-stream", 200),
    ],
)
def test_a_body_is_measured_by_its_route_and_not_by_its_label(client, path, label, status) -> None:
    headers = {"content-type": label}
    assert client.post(path, content=bytes(4096), headers=headers).status_code == status


def test_the_label_of_an_upload_buys_no_larger_body(client) -> None:
    head = HEAD.replace(b"application/json", b"multipart/form-data; boundary=x")
    head = head.replace(b"/tts", b"/v1/audio/speech/x/audio").replace(b"keep-alive", b"close")
    status, _ = sent(client, head, b"Content-Length: 4096\r\n\r\n")
    assert status in {404, 413}


def test_every_route_that_takes_a_recording_has_the_limit_of_uploads(client) -> None:
    taking = {
        (method.upper(), path)
        for path, methods in client.get("/openapi.json").json()["paths"].items()
        for method, one in methods.items()
        if {"multipart/form-data", "audio/*"} & set(one.get("requestBody", {}).get("content", {}))
    }
    assert taking == gate_rules(LIMITS).uploads


def listed(one: str, count: int) -> str:
    """Return JSON with one value more than so many."""
    return '{"a": [' + ", ".join([one] * count) + "]}"


@pytest.mark.parametrize("one", ["1", "[]", "{}", '""', '"a,[{"', r'"\\"', r'"\"[,"'])
def test_values_are_counted_whatever_they_are(one: str) -> None:
    check_json_size(listed(one, MAX_VALUES - 1))
    for count in (MAX_VALUES, 4 * MAX_VALUES):
        for body in (listed(one, count), listed(one, count).encode()):
            with pytest.raises(InvalidRequest, match="values"):
                check_json_size(body)


@pytest.mark.parametrize("inside", [",", "[", "{", r"\"", r"\"[,", r"\\"])
@pytest.mark.parametrize("end", ['"}', '"', "", "\\"])
def test_what_is_within_a_text_is_no_value(inside: str, end: str) -> None:
    body = '{"input": "' + inside * 4 * MAX_VALUES + end
    check_json_size(body)
    check_json_size(body.encode())


def test_no_json_is_too_large_before_it_is_none() -> None:
    check_json_size("a" * 10_000)
    with pytest.raises(InvalidRequest, match="values"):
        check_json_size("[" * 10_000)
