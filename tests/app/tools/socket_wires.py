"""A client of each socket that speech is asked for over: a WebSocket, or Wyoming's."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.app.tools.live_client import LiveClient, live, url_of

OF_A_SLOW_READER: Final[dict[str, Any]] = {
    "max_queue": 1, "compression": None, "close_timeout": 0.1, "proxy": None,
    "ping_interval": None,
}  # fmt: skip
"""Options of a WebSocket that takes a few messages at once, and waits for nothing that it left.

With pings it would end up to 20 seconds later: the next one behind what is unread is waited for.
"""


class SocketClient:
    """The service's own WebSocket."""

    def __init__(self, session: LiveClient) -> None:
        self.session = session

    def hear(self) -> None:
        self.session.until_sound()

    def again(self, text: str) -> str:
        return self.named(self.session.say(text)["finish_reason"])

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

    def __init__(self, connection: ClientConnection) -> None:
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


class ContextClient(ElevenLabsSocketClient):
    """A context of ElevenLabs' WebSocket for several."""

    def cancel(self) -> None:
        self._send(context_id="a", close_context=True)

    def ending(self) -> str:
        error = ""
        while not (message := json.loads(self._connection.recv(timeout=60))).get("isFinal"):
            error = error or str(message.get("error") or "")
        return error or "whole"

    def again(self, text: str) -> str:
        self._send(text=f"{text}. ", context_id="b", flush=True)
        self._send(context_id="b", close_context=True)
        return self.ending()

    def _send(self, **fields: Any) -> None:
        self._connection.send(json.dumps(fields))


@contextmanager
def elevenlabs_context(server: httpx.Client, _: int, text: str) -> Iterator[ContextClient]:
    """Ask in a context, which is not closed and may be stopped."""
    path = "/v1/text-to-speech/default/multi-stream-input?output_format=pcm_24000&auto_mode=true"
    with connect(url_of(server, path), **OF_A_SLOW_READER) as connection:
        connection.send(json.dumps({"text": f"{text}. ", "context_id": "a"}))
        yield ContextClient(connection)


class NariClient:
    """nari-labs' protocol, of which a socket speaks once."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    def hear(self) -> None:
        while not isinstance(self._connection.recv(timeout=60), bytes):
            pass

    def cancel(self) -> None:
        self._connection.send(json.dumps({"type": "response.cancel"}))

    def ending(self) -> str:
        error = ""
        for message in self._connection:
            told = {} if isinstance(message, bytes) else json.loads(message)
            if told.get("type") == "error":
                error = told["error"]["code"]
            elif told.get("type") == "response.done":
                return error or SocketClient.named(told["stop_reason"])
        return error or "cut off"


@contextmanager
def nari(server: httpx.Client, _: int, text: str) -> Iterator[NariClient]:
    """Ask by nari-labs' protocol."""
    start = {
        "type": "request.start", "model": "tts-1", "language": "en", "voice": "default",
        "response_format": "pcm", "non_streaming_mode": False,
    }  # fmt: skip
    piece = {"type": "input_text.append", "sequence": 0, "text": text}
    end = {"type": "input_text.end", "sequence": 1}
    path = "/v1/audio/speech/ws"
    protocols: Any = ["nari.speech.v1"]
    with connect(url_of(server, path), subprotocols=protocols, **OF_A_SLOW_READER) as connection:
        for message in (start, piece, end):
            connection.send(json.dumps(message))
        yield NariClient(connection)


class OmniClient:
    """vLLM-Omni's protocol."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    def hear(self) -> None:
        while not isinstance(self._connection.recv(timeout=60), bytes):
            pass

    def ending(self) -> str:
        error = ""
        for message in self._connection:
            told = {} if isinstance(message, bytes) else json.loads(message)
            if told.get("type") == "error":
                error = told["message"]
            elif told.get("type") == "session.done":
                return error or "whole"
        return error or "cut off"

    def ask(self, text: str) -> None:
        self._connection.send(json.dumps({"type": "input.text", "text": text}))
        self._connection.send(json.dumps({"type": "input.done"}))

    def again(self, text: str) -> str:
        self.ask(text)
        return self.ending()


@contextmanager
def vllm_omni(server: httpx.Client, _: int, text: str) -> Iterator[OmniClient]:
    """Ask by vLLM-Omni's protocol."""
    config = {"type": "session.config", "response_format": "pcm", "stream_audio": True}
    with connect(url_of(server), **OF_A_SLOW_READER) as connection:
        connection.send(json.dumps(config))
        client = OmniClient(connection)
        client.ask(text)
        yield client


class WyomingClient:
    """A connection of Wyoming."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rb")
        self.address = connection.getsockname()

    def ask(self, text: str) -> None:
        event = {"type": "synthesize", "data": {"text": text}}
        self._connection.sendall(json.dumps(event).encode() + b"\n")

    def again(self, text: str) -> str:
        self.ask(text)
        return self.ending()

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
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        client = WyomingClient(connection)
        client.ask(text)
        try:
            yield client
        finally:
            client.close()
