"""nari-labs' protocol, as the client of its benchmark speaks and checks it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.app.tools.live_client import refused, url_of

PATH = "/v1/audio/speech/ws"
PROTOCOL = "nari.speech.v1"
AUDIO = {"encoding": "pcm_s16le", "sample_rate": 24_000, "channels": 1}
START = {"type": "request.start", "model": "tts-1", "voice": "alloy", "language": "en"}


@contextmanager
def opened(client: httpx.Client, **options: Any) -> Iterator[ClientConnection]:
    with connect(url_of(client, PATH), subprotocols=[PROTOCOL], **options) as socket:  # type: ignore[list-item]
        assert socket.subprotocol == PROTOCOL
        assert got(socket) == {"type": "session.created", "protocol": PROTOCOL, "audio": AUDIO}
        yield socket


def got(socket: ClientConnection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(socket.recv(timeout=60))
    return message


def send(socket: ClientConnection, kind: str, **fields: Any) -> None:
    socket.send(json.dumps({"type": kind, **fields}))


def rest(socket: ClientConnection) -> list[dict[str, Any] | bytes]:
    """Return all that comes until the socket is closed."""
    return [one if isinstance(one, bytes) else json.loads(one) for one in socket]


@pytest.fixture
def started(streaming: httpx.Client) -> Iterator[ClientConnection]:
    fields = {"voice": "default", "response_format": "pcm", "non_streaming_mode": False}
    with opened(streaming) as socket:
        socket.send(json.dumps(START | fields))
        assert got(socket)["type"] == "request.configured"
        yield socket


def test_a_text_in_words_is_spoken_once_and_the_socket_closed(started: ClientConnection) -> None:
    for number, word in enumerate(("Hello ", "there. ", "We won.")):
        send(started, "input_text.append", sequence=number, text=word)
    send(started, "input_text.end", sequence=3)
    came = rest(started)
    messages = [one for one in came if isinstance(one, dict)]
    assert {one["type"] for one in messages} == {
        "input_text.ack",
        "response.started",
        "response.done",
    }
    acks = [(one["event"], one["sequence"]) for one in messages if one["type"] == "input_text.ack"]
    assert acks == [*(("input_text.append", number) for number in range(3)), ("input_text.end", 3)]
    (begun,) = (one for one in messages if one["type"] == "response.started")
    assert begun["audio"] == AUDIO
    frames = [one for one in came if isinstance(one, bytes)]
    assert all(frames)
    assert came.index(begun) < came.index(frames[0])
    assert messages[-1] == {
        "type": "response.done",
        "request_id": begun["request_id"],
        "stop_reason": "stop",
        "audio_chunks": len(frames),
    }
    assert started.close_code == 1000


@pytest.mark.parametrize(
    "fields",
    [
        {"voice": "nobody"},
        {"voice": "default", "model": "bark"},
        {"voice": "default", "speeed": 1},
        {"voice": "default", "response_format": "mp3"},
        {"type": "response.create"},
    ],
)
def test_a_wrong_start_is_an_error_and_another_may_follow(
    streaming: httpx.Client, fields: dict[str, Any]
) -> None:
    with opened(streaming) as socket:
        socket.send(json.dumps(START | fields))
        assert got(socket)["error"]["message"]
        socket.send(json.dumps(START | {"voice": "default"}))
        assert got(socket)["type"] == "request.configured"


def test_another_subprotocol_is_refused(streaming: httpx.Client) -> None:
    assert refused(streaming, PATH)[0] == 422
