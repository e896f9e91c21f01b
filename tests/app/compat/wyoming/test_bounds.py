"""What the Wyoming port reads of strangers: nothing without a bound, and no exception unhandled."""

import gc
import json
import logging
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from tests.app.tools.live_client import keep_on, refused, serving
from tests.app.tools.serving import free_port, until
from tests.fakes import FakeBackend


@contextmanager
def wyoming(
    speaking: FakeBackend | None = None, **settings: Any
) -> Iterator[tuple[int, httpx.Client]]:
    """Give the port of a server with a fake, and a client of its HTTP port."""
    port = free_port()
    with serving(speaking or FakeBackend(0.1), wyoming_port=port, **settings) as (client, _):
        yield port, client


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server with default settings."""
    with wyoming() as (number, _):
        yield number


@pytest.fixture(scope="module")
def impatient() -> Iterator[int]:
    """That of one which waits for half a second."""
    with wyoming(idle_timeout_s=0.5) as (number, _):
        yield number


def event(kind: str, **data: Any) -> bytes:
    return json.dumps({"type": kind, "data": data}).encode() + b"\n"


_PEERS: list["Peer"] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close the connections of a test."""
    yield
    while _PEERS:
        peer = _PEERS.pop()
        peer.file.close()
        peer.socket.close()


class Peer:
    """A connection that sends and reads events."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 20, (source, 0))
        self.file = self.socket.makefile("rb")
        _PEERS.append(self)

    def next(self) -> dict[str, Any] | None:
        """Return the next event with the size of its payload; None at the end."""
        line = self.file.readline()
        if not line:
            return None
        head = json.loads(line)
        data = json.loads(self.file.read(head["data_length"]) or b"{}")
        return {"type": head["type"], **data, "sound": self.file.read(head["payload_length"])}

    def until(self, kind: str) -> list[dict[str, Any]]:
        came: list[dict[str, Any]] = []
        while not came or came[-1]["type"] != kind:
            one = self.next()
            assert one is not None, f"the connection ended after {came[-3:]}"
            came.append(one)
        return came


ENDS_THE_CONNECTION = {
    "a line without an end": b"x" * 70_000,
    "a giant payload": b'{"type":"describe","payload_length":1000000000000}\n',
    "any payload": b'{"type":"describe","payload_length":1}\nx',
    "giant data": b'{"type":"describe","data_length":19800000}\n',
    "a length that is a text": b'{"type":"describe","data_length":"12"}\n',
    "a length that is a fraction": b'{"type":"describe","data_length":1.5}\n',
    "a length below zero": b'{"type":"describe","data_length":-1}\n',
    "a length that is true": b'{"type":"describe","data_length":true}\n',
    "a list": b"[]\n",
    "a number": b"1\n",
    "no type": b"{}\n",
    "a type that is none": b'{"type":1}\n',
    "no JSON": b"describe\n",
    "no UTF-8": b"\xff\n",
    "deep nesting": b"[" * 16_000 + b"\n",
    "data that are a list": b'{"type":"describe","data":[]}\n',
    "data after the line that are a list": b'{"type":"describe","data_length":2}\n[]',
    "87,000 lists": b'{"type":"describe","data_length":261009}\n{"a":[' + b"[]," * 87_000 + b"1]}",
}


@pytest.mark.parametrize("sent", ENDS_THE_CONNECTION.values(), ids=ENDS_THE_CONNECTION)
def test_what_is_no_event_is_an_error_and_the_end(port, sent, caplog) -> None:
    peer = Peer(port)
    peer.socket.sendall(sent)
    told = peer.next()
    assert told is not None
    assert told["type"] == "error"
    assert told["text"]
    assert peer.next() is None
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    "sent", [b"", b'{"type":"x', b'{"type":"synthesize","data_length":9}\n{', event("unknown")]
)
def test_a_connection_may_end_anywhere(port, sent, caplog) -> None:
    peer = Peer(port)
    peer.socket.sendall(sent)
    peer.socket.shutdown(socket.SHUT_WR)
    assert peer.next() is None
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def test_events_that_are_not_valid_leave_the_connection_open(port) -> None:
    peer = Peer(port)
    for data in ({"text": 1}, {"text_format": "html"}, {"voice": "x"}, {"sample_rate": 1}):
        peer.socket.sendall(event("synthesize", **{"text": "Hi."} | data))
        assert peer.until("error")[-1]["text"]
    peer.socket.sendall(event("synthesize", text="Hi.", text_format="ssml", context={}))
    came = peer.until("audio-stop")
    while "rate" not in came[0]:  # what ends each error
        came = peer.until("audio-stop")
    assert came[0]["rate"] == 24_000
    peer.socket.sendall(event("synthesize", text="Hi.", sample_rate=16000))
    came = peer.until("audio-stop")
    assert came[0]["rate"] == 16_000
    assert sum(len(one["sound"]) for one in came) == pytest.approx(2 * 1600 * 3, abs=64)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        event("synthesize-start"),
        event("describe"),
        event("synthesize-start") + event("synthesize-chunk", text=" "),
    ],
)
def test_a_silent_connection_is_closed(impatient, sent) -> None:
    peer = Peer(impatient)
    peer.socket.sendall(sent)
    while (came := peer.next()) is not None:
        last = came
    assert last["type"] == "error"


def test_blank_text_keeps_no_connection_open(impatient) -> None:
    peer = Peer(impatient)
    peer.socket.sendall(event("synthesize-start"))
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        keep_on(lambda: peer.socket.sendall(event("synthesize-chunk", text=" . ")))


def test_connections_are_sessions_and_count_with_the_others() -> None:
    with wyoming(max_sessions=5) as (port, client):
        open_ = [Peer(port) for _ in range(4)]
        for peer in open_:
            peer.socket.sendall(event("describe"))
            peer.until("info")
        beyond = Peer(port)
        told = beyond.next()
        assert told is not None
        assert told["code"] == "too_many_sessions"
        assert refused(client)[0] == 503
        other = Peer(port, "127.0.0.2")
        other.socket.sendall(event("describe"))
        other.until("info")


def test_idle_connections_count_towards_the_limit_of_all() -> None:
    with wyoming(max_connections=10) as (port, client):
        open_ = [Peer(port) for _ in range(12)]
        refused = sum(_refused(peer) for peer in open_)
        assert refused >= 12 - 8
        until(lambda: client.get("/health").status_code == 200)
        with httpx.Client(base_url=client.base_url) as another:
            assert another.post("/tts", json={"input": "Hi."}).status_code == 503


def _refused(peer: Peer) -> bool:
    peer.socket.sendall(event("describe"))
    told = peer.next()
    return told is None or told.get("code") == "too_many_connections"


@pytest.mark.slow
def test_a_device_is_never_left_in_silence_while_text_is_awaited(port) -> None:
    peer = Peer(port)
    peer.socket.sendall(event("synthesize-start"))
    peer.socket.sendall(event("synthesize-chunk", text="Hello. A"))
    came = peer.until("audio-chunk")
    while any(came[-1]["sound"]):
        came += peer.until("audio-chunk")
    came += peer.until("audio-chunk")
    assert not any(came[-1]["sound"])
    peer.socket.sendall(event("synthesize-chunk", text="nd."))
    peer.socket.sendall(event("synthesize-stop"))
    came += peer.until("synthesize-stopped")
    chunks = [one for one in came if one["type"] == "audio-chunk"]
    at = 0
    for one in chunks:
        assert one["timestamp"] == 1000 * at // 24_000
        at += len(one["sound"]) // 2
    assert any(chunks[-1]["sound"])


@pytest.mark.parametrize(
    "sent", [b"", event("describe"), event("synthesize", text="x" * 400), b"no event\n"]
)
def test_stopping_closes_the_connections(sent) -> None:
    gc.collect()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with wyoming(FakeBackend(5.0)) as (port, _):
            unread, peer = Peer(port), Peer(port)
            unread.socket.sendall(sent)
            peer.socket.sendall(event("describe"))
            peer.until("info")
            if b"synthesize" in sent:
                unread.until("audio-start")  # and no more
        with suppress(ConnectionError):
            assert peer.next() is None
        gc.collect()
    assert [str(one.message) for one in told if one.category is ResourceWarning] == []
