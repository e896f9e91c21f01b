"""Clients that take their time before a request, on real sockets; and how many there may be."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from app.main import create_app
from app.settings import Settings
from tests.app.tools.live_client import live
from tests.app.tools.serving import connected, served, until
from tests.fakes import FakeBackend, fake_engine

TIMEOUT_S = 0.4
MAX_CONNECTIONS = 8
HEAD = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
SPEAKING = FakeBackend(block={"wait": "ar"})


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    settings = Settings(header_timeout_s=TIMEOUT_S, max_connections=MAX_CONNECTIONS)
    with served(create_app(settings, fake_engine(SPEAKING))) as one:
        yield one


@pytest.fixture
def few() -> Iterator[httpx.Client]:
    """A client, without connections of its own, of a server that takes few."""
    settings = Settings(header_timeout_s=60, max_connections=MAX_CONNECTIONS)
    with served(create_app(settings, fake_engine())) as client:
        client.close()
        yield client


def hold(held: ExitStack, client: httpx.Client) -> None:
    """Take every connection there is, from two addresses, and say nothing."""
    for source in ("127.0.0.2", "127.0.0.3"):
        for _ in range(MAX_CONNECTIONS // 2):
            held.enter_context(connected(client, source))


def rest(connection: socket.socket) -> bytes:
    """Return all that comes until the server closes."""
    answer = b""
    while piece := connection.recv(65536):
        answer += piece
    return answer


def answered(connection: socket.socket) -> bytes:
    """Return one answer to its end, on a connection that stays; head and body may come apart."""
    answer = b""
    while not answer.endswith(b"}"):
        piece = connection.recv(65536)
        assert piece, f"closed after {answer!r}"
        answer += piece
    return answer


def split(answer: bytes) -> tuple[int, bytes, dict[str, object]]:
    """Return status, head and error of the only answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head, json.loads(body)["error"]


def drip(connection: socket.socket, text: bytes) -> None:
    """Send a byte at a time until the server has closed; it must, or the text is too short."""
    for byte in text:
        try:
            connection.sendall(bytes([byte]))
        except ConnectionError:
            return
        time.sleep(TIMEOUT_S / 20)
    raise AssertionError("the server took every byte")


@pytest.mark.parametrize("begun", [b"G", b"GET /health HTTP/1.1\r\n", HEAD + b"X: "])
def test_a_head_that_does_not_end_is_given_up(client, begun) -> None:
    with connected(client) as slow:
        slow.sendall(begun)
        status, head, error = split(rest(slow))
    assert status == 408
    assert b"connection: close" in head.lower()
    assert error["code"] == "header_timeout"
    assert error["type"] == "invalid_request_error"


def test_a_byte_now_and_then_buys_no_time(client) -> None:
    with connected(client) as slow:
        drip(slow, HEAD + b"X: " + b"a" * 200)


def test_a_second_head_on_a_connection_is_bounded_too(client) -> None:
    with connected(client) as slow:
        slow.sendall(HEAD + b"\r\n")
        assert answered(slow).startswith(b"HTTP/1.1 200")
        drip(slow, HEAD + b"X: " + b"a" * 200)


def test_a_body_that_goes_on_after_its_answer_is_bounded(client) -> None:
    with connected(client) as slow:
        slow.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        assert answered(slow).startswith(b"HTTP/1.1 200")
        drip(slow, b"a" * 200)


def test_a_connection_that_says_nothing_is_closed_without_a_word(client) -> None:
    with connected(client) as silent:
        assert rest(silent) == b""


@pytest.mark.slow
def test_an_idle_connection_is_kept_for_its_next_request(client) -> None:
    with connected(client) as patient:
        for _ in range(2):
            patient.sendall(HEAD + b"\r\n")
            assert answered(patient).startswith(b"HTTP/1.1 200")
            time.sleep(2 * TIMEOUT_S)


def test_time_is_counted_for_the_head_alone(client) -> None:
    with ThreadPoolExecutor(1) as asking:
        answer = asking.submit(client.post, "/tts", json={"input": "wait"})
        assert SPEAKING.began.wait(20)
        time.sleep(2 * TIMEOUT_S)
        SPEAKING.let(4)
        assert answer.result().status_code == 200


def test_a_session_outlives_the_time_for_its_handshake(client) -> None:
    with live(client) as session:
        time.sleep(2 * TIMEOUT_S)
        session.create()
        session.text("Hi.")
        session.end()
        assert session.until("response.done")["finish_reason"] == "stop"


@pytest.mark.slow
def test_one_connection_too_many_is_told_so_and_the_next_is_served(few) -> None:
    models = few.base_url.join("/v1/models")
    with ExitStack() as held:
        hold(held, few)
        with connected(few) as late:
            status, head, error = split(rest(late))
        assert status == 503
        assert b"retry-after: " in head.lower()
        assert (error["code"], error["type"]) == ("too_many_connections", "server_error")
        refused = httpx.get(models)
        assert refused.status_code == 503
        assert refused.json()["error"] == error
    until(lambda: httpx.get(models).status_code == 200)


def test_probes_are_answered_while_every_connection_is_taken(few) -> None:
    """A full service that told its supervisor nothing would be restarted for being full."""
    with ExitStack() as held:
        hold(held, few)
        for _ in range(40):  # silent ones of one client more fill the room for probes, too
            held.enter_context(connected(few))
        for path in ("/health", "/ready"):
            answer = httpx.get(few.base_url.join(path))
            assert answer.status_code == 200
            assert answer.headers["connection"] == "close"
        with pytest.raises(InvalidStatus) as refused, live(few):
            pass
        assert refused.value.response.status_code == 503


def test_an_address_has_its_share_and_another_is_served(few) -> None:
    with ExitStack() as held:
        for _ in range(30):
            held.enter_context(connected(few))
        assert httpx.get(few.base_url.join("/v1/models")).status_code == 503
        elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(transport=elsewhere, base_url=few.base_url) as other:
            assert other.get("/v1/models").status_code == 200
            assert other.post("/tts", json={"input": "Hi."}).status_code == 200
