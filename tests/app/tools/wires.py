"""A client of each wire that speech is asked for over: it hears, leaves, is told how it went."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from typing import Any, Final

import httpx

from tests.app.tools.listeners import Wire
from tests.app.tools.socket_wires import (
    elevenlabs_context,
    elevenlabs_socket,
    nari,
    own_socket,
    vllm_omni,
    wyoming,
)

READ_BYTES: Final = 512


class HttpClient:
    """An answer that may come while the speech is made."""

    def __init__(self, connection: HTTPConnection, *, is_streamed: bool) -> None:
        self._connection = connection
        self._is_streamed = is_streamed
        self._answer: HTTPResponse | None = None
        self.sound = bytearray()
        self.address = connection.sock.getsockname()

    def hear(self) -> None:
        if self._is_streamed:
            self.sound += self._response().read1(READ_BYTES)
            assert self.sound

    def ending(self) -> str:
        try:
            while part := self._response().read1(READ_BYTES):
                self.sound += part
        except (IncompleteRead, ConnectionResetError):
            return "cut off"
        body = bytes(self.sound)
        if self._response().getheader("content-type", "").startswith("text/event-stream"):
            body = body.splitlines()[-2].removeprefix(b"data: ")
        elif self._response().status == 200:
            return "whole"
        error = json.loads(body).get("error")
        return str(error["code"]) if error else "whole"

    def header(self, name: str) -> str:
        """Return a header of the answer; empty without."""
        return self._response().getheader(name, "")

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
    "ElevenLabs' context": elevenlabs_context,
    "nari": nari,
    "vLLM-Omni": vllm_omni,
    "Wyoming": wyoming,
}
"""Wires that give sound while more is made."""
WIRES: Final = WHOLE | STREAMED | {"command line": command_line}
