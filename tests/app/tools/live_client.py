"""A client of the WebSocket for tests: sends messages, collects what comes."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from app.api.realtime.valle import PROTOCOL
from app.engine.engine import SpeechEngine
from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.fakes import FakeBackend, fake_engine

Message = dict[str, Any]


class LiveClient:
    """One session, with all the sound that came over it."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.sound = b""
        self.seen: list[Message] = []
        self._sequence = 0

    def send(self, kind: str, **fields: Any) -> None:
        self.connection.send(json.dumps({"type": kind, **fields}))

    def text(self, text: str) -> None:
        self._numbered("input_text.append", text=text)

    def flush(self) -> None:
        self._numbered("input_text.flush")

    def end(self) -> None:
        self._numbered("input_text.end")

    def create(self, **fields: Any) -> str:
        self._sequence = 0
        self.send("response.create", **fields)
        name: str = self.until("response.created")["response_id"]
        return name

    def next(self) -> Message | bytes:
        got = self.connection.recv(timeout=60)
        if isinstance(got, bytes):
            self.sound += got
            return got
        message: Message = json.loads(got)
        self.seen.append(message)
        return message

    def until(self, kind: str) -> Message:
        """Read on to the next message of a kind."""
        while True:
            got = self.next()
            if isinstance(got, dict) and got["type"] == kind:
                return got

    def until_sound(self) -> bytes:
        while not isinstance(got := self.next(), bytes):
            pass
        return got

    def say(self, *packets: str, **fields: Any) -> Message:
        """Speak a text; return its `response.done`."""
        self.create(**fields)
        for packet in packets:
            self.text(packet)
        self.end()
        return self.until("response.done")

    def _numbered(self, kind: str, **fields: Any) -> None:
        self.send(kind, sequence=self._sequence, **fields)
        self._sequence += 1


def url_of(client: httpx.Client, path: str = "/v1/audio/speech/stream") -> str:
    return str(client.base_url.copy_with(scheme="ws")).rstrip("/") + path


@contextmanager
def live(client: httpx.Client, **options: Any) -> Iterator[LiveClient]:
    """Open a session with a server."""
    options.setdefault("subprotocols", [PROTOCOL])
    with connect(url_of(client), **options) as connection:
        session = LiveClient(connection)
        assert session.until("session.created")["protocol"] == PROTOCOL
        yield session


def refused(
    client: httpx.Client, path: str = "/v1/audio/speech/stream", **options: Any
) -> tuple[int, Message]:
    """Open a WebSocket that is refused; return status and error of the answer."""
    usual: dict[str, Any] = {"uri": url_of(client, path), "subprotocols": [PROTOCOL]}
    with pytest.raises(InvalidStatus) as refusal:
        connect(**usual | options)
    answer = refusal.value.response
    error: Message = json.loads(bytes(answer.body or b""))["error"]
    return answer.status_code, error


def keep_on(step: Callable[[], object]) -> None:
    """Do something ten times a second, until the other side closes the connection."""
    for _ in range(300):
        step()
        time.sleep(0.1)


@contextmanager
def serving(
    speaking: FakeBackend | None = None, **settings: Any
) -> Iterator[tuple[httpx.Client, SpeechEngine]]:
    """Serve a fake, with settings."""
    chosen = Settings(**settings)
    engine = fake_engine(
        speaking,
        stall_timeout_s=chosen.stall_timeout_s,
        request_timeout_s=chosen.request_timeout_s,
    )
    with served(create_app(chosen, engine)) as client:
        yield client, engine
