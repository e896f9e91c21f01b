"""A client of each wire that speech is asked for over: it hears, leaves, is told how it went."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from typing import Any, Final, Protocol

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.app.tools.live_client import live, url_of

READ_BYTES: Final = 512
OF_A_SLOW_READER: Final[dict[str, Any]] = {
    "max_queue": 1, "compression": None, "close_timeout": 0.1, "proxy": None
}  # fmt: skip
"""Options of a WebSocket that takes a few messages at once, and does not wait for those it left."""


class Listener(Protocol):
    """Somebody who has asked for a speech; leaving its context leaves the service."""

    def hear(self) -> None:
        """Wait for the first sound; no-op where it comes with the last."""

    def ending(self) -> str:
        """Read to the end: "whole", "cut off", or the code or words of an error."""


Wire = Callable[[httpx.Client, int, str], AbstractContextManager[Listener]]
"""Asks a server, of which a client and the Wyoming port are given, to speak a text."""


class HttpClient:
    """An answer that may come while the speech is made."""

    def __init__(self, connection: HTTPConnection, *, is_streamed: bool) -> None:
        self._connection = connection
        self._is_streamed = is_streamed
        self._answer: HTTPResponse | None = None

    def hear(self) -> None:
        if self._is_streamed:
            assert self._response().read1(READ_BYTES)

    def ending(self) -> str:
        try:
            body = self._response().read()
        except (IncompleteRead, ConnectionResetError):
            return "cut off"
        if self._response().getheader("content-type", "").startswith("text/event-stream"):
            body = body.splitlines()[-2].removeprefix(b"data: ")
        elif self._response().status == 200:
            return "whole"
        error = json.loads(body).get("error")
        return str(error["code"]) if error else "whole"

    def _response(self) -> HTTPResponse:
        if self._answer is None:
            self._answer = self._connection.getresponse()
        return self._answer


@contextmanager
def http(
    path: str, fields: dict[str, Any], server: httpx.Client, _: int, text: str
) -> Iterator[HttpClient]:
    """Ask for a speech over HTTP."""
    connection = HTTPConnection(server.base_url.host, server.base_url.port or 80, timeout=60)
    is_elevenlabs = path.startswith("/v1/text-to-speech")
    body = json.dumps({"text" if is_elevenlabs else "input": text} | fields)
    connection.request("POST", path, body, {"content-type": "application/json"})
    is_streamed = "/stream" in path or fields.get("stream", path.startswith("/dev/")) is True
    client = HttpClient(connection, is_streamed=is_streamed)
    try:
        yield client
    finally:
        if client._answer is not None:
            client._answer.close()
        connection.close()


class SocketClient:
    """The service's own WebSocket."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def hear(self) -> None:
        self.session.until_sound()

    def cancel(self) -> None:
        self.session.send("response.cancel")

    def ending(self) -> str:
        done = self.session.until("response.done")
        errors = [one["error"]["code"] for one in self.session.seen if one["type"] == "error"]
        return str(errors[-1]) if errors else self.named(done["finish_reason"])

    @staticmethod
    def named(reason: str) -> str:
        return "whole" if reason == "stop" else reason


@contextmanager
def own_socket(server: httpx.Client, _: int, text: str) -> Iterator[SocketClient]:
    """Ask over the service's own WebSocket, of which a client may take a few messages at once."""
    with live(server, **OF_A_SLOW_READER) as session:
        session.create()
        session.text(text)
        session.end()
        yield SocketClient(session)


class ElevenLabsSocketClient:
    """ElevenLabs' WebSocket."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def hear(self) -> None:
        assert json.loads(self._connection.recv(timeout=60))["audio"]

    def ending(self) -> str:
        try:
            while not (message := json.loads(self._connection.recv(timeout=60))).get("isFinal"):
                if "audio" not in message:
                    return str(message.get("error") or message["message"])
        except ConnectionClosed:
            return "cut off"
        return "whole"


@contextmanager
def elevenlabs_socket(server: httpx.Client, _: int, text: str) -> Iterator[ElevenLabsSocketClient]:
    """Ask over ElevenLabs' WebSocket."""
    path = "/v1/text-to-speech/default/stream-input?output_format=pcm_24000"
    with connect(url_of(server, path), **OF_A_SLOW_READER) as connection:
        connection.send(json.dumps({"text": f"{text} "}))
        connection.send(json.dumps({"text": ""}))
        yield ElevenLabsSocketClient(connection)


class WyomingClient:
    """A connection of Wyoming."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")

    def hear(self) -> None:
        while self._next()[0] != "audio-chunk":
            pass

    def ending(self) -> str:
        error = ""
        while True:
            kind, data = self._next()
            if kind == "error":
                error = data["code"] or data["text"]
            elif kind == "audio-stop":
                return error or "whole"

    def close(self) -> None:
        self._file.close()

    def _next(self) -> tuple[str, dict[str, Any]]:
        head = json.loads(self._file.readline())
        data = json.loads(self._file.read(head["data_length"]) or b"{}")
        self._file.read(head["payload_length"])
        return head["type"], data


@contextmanager
def wyoming(_: httpx.Client, port: int, text: str) -> Iterator[WyomingClient]:
    """Ask over Wyoming."""
    event = {"type": "synthesize", "data": {"text": text}}
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(json.dumps(event).encode() + b"\n")
        client = WyomingClient(connection)
        try:
            yield client
        finally:
            client.close()


class CommandClient:
    """The program, which writes a stream to a pipe."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def hear(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.read(2)

    def ending(self) -> str:
        _, said = self._process.communicate(timeout=60)
        return "whole" if self._process.returncode == 0 else said.decode().strip()


@contextmanager
def command_line(server: httpx.Client, _: int, text: str) -> Iterator[CommandClient]:
    """Ask by `valle-serve speak --url`, which is terminated.

    Not by SIGINT: a shell has it ignored in what it runs in the background, as these tests in CI.
    """
    words = ["speak", text, "-o", "-", "--url", str(server.base_url), "--response-format", "pcm"]
    with subprocess.Popen(
        [sys.executable, "-m", "app", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield CommandClient(process)
        finally:
            if process.poll() is None:
                process.terminate()


_ELEVENLABS = "/v1/text-to-speech/default"
_PCM = "?output_format=pcm_24000"  # quickly made, so that what is slow is the reader
_OURS: Final[dict[str, Any]] = {"response_format": "pcm"}
WHOLE: Final[dict[str, Wire]] = {
    "/tts, whole": partial(http, "/tts", _OURS),
    "OpenAI, whole": partial(
        http, "/v1/audio/speech", _OURS | {"voice": "default", "stream": False}
    ),
    "ElevenLabs, whole": partial(http, f"{_ELEVENLABS}{_PCM}", {}),
    "ElevenLabs, whole, timed": partial(http, f"{_ELEVENLABS}/with-timestamps{_PCM}", {}),
    "captioned, whole": partial(http, "/dev/captioned_speech", _OURS | {"stream": False}),
}
"""Wires that give all sound at the end."""
STREAMED: Final[dict[str, Wire]] = {
    "/tts": partial(http, "/tts", _OURS | {"stream": True}),
    "OpenAI": partial(http, "/v1/audio/speech", _OURS | {"voice": "default", "stream": True}),
    "OpenAI, events": partial(
        http,
        "/v1/audio/speech",
        _OURS | {"voice": "default", "stream": True, "stream_format": "sse"},
    ),
    "ElevenLabs": partial(http, f"{_ELEVENLABS}/stream{_PCM}", {}),
    "ElevenLabs, timed": partial(http, f"{_ELEVENLABS}/stream/with-timestamps{_PCM}", {}),
    "captioned": partial(http, "/dev/captioned_speech", _OURS),
    "socket": own_socket,
    "ElevenLabs' socket": elevenlabs_socket,
    "Wyoming": wyoming,
}
"""Wires that give sound while more is made."""
WIRES: Final = WHOLE | STREAMED | {"command line": command_line}
