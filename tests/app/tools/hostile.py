"""The worst inputs of each kind that we know of: what a stranger sends to hold up all others."""

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect

from app.api.realtime.valle import PROTOCOL
from samplers.knobs.params import SamplingParams
from tests.app.tools.live_client import url_of
from tests.app.tools.serving import connected

CHARS = 4096
SIZE = 260_000
JSON = {"content-type": "application/json"}
KNOBS = list(SamplingParams.model_fields)

Attack = Callable[[httpx.Client], None]


def shuffled(count: int) -> dict[str, int]:
    """Names that are nearly those of knobs."""
    chance = random.Random(7)
    return {
        "".join(chance.sample(name := chance.choice(KNOBS), len(name))) + str(number): 1
        for number in range(count)
    }


def _text(text: str) -> dict[str, object]:
    return {"input": text, "max_duration_s": 0.3}


BODIES: dict[str, str | bytes] = {
    "2,000 unknown fields": json.dumps(shuffled(2000)),
    "20,000 unknown fields": json.dumps({f"x{number}": 1 for number in range(20_000)}),
    "130,000 steps": '{"input":"x","sampler_order":[' + "1," * 129_000 + "1]}",
    "50,000 banned words": json.dumps({"input": "x", "ban_tokens": ["a"] * 50_000}),
    "8,000 wrong biases": json.dumps({
        "input": "x",
        "logit_bias": {f"a{n}": 1 for n in range(8000)},
    }),
    "4,000 biases": json.dumps(_text("x") | {"logit_bias": {str(n): 1 for n in range(4000)}}),
    "15,000 sequences": json.dumps({"input": "x", "ban_sequences": [{"codes": []}] * 15_000}),
    "80,000 lists": '{"input":"x","seed":[' + "[]," * 80_000 + "[]]}",
    "deep lists": '{"seed":' + "[" * 120_000 + "]" * 120_000 + "}",
    "deep objects": '{"a":' * 40_000,
    "a giant integer": '{"input":"x","seed":' + "1" * SIZE + "}",
    "a giant fraction": '{"input":"x","temperature":0.' + "1" * SIZE + "}",
    "a giant exponent": '{"input":"x","temperature":1e' + "1" * SIZE + "}",
    "a giant voice": json.dumps({"input": "x", "voice": "v" * SIZE}),
    "a giant model": json.dumps({"input": "x", "model": "v" * SIZE}),
    "a giant language": json.dumps({"input": "x", "language": "v" * SIZE}),
    "a giant preset": json.dumps({"input": "x", "preset": "v" * SIZE}),
    "a giant field": json.dumps({"v" * SIZE: 1}),
    "a giant format": json.dumps({"input": "x", "response_format": "v" * SIZE}),
    "a giant text": json.dumps({"input": "é" * (SIZE // 6)}),
    "escapes": '{"input":"' + "\\u0000" * (SIZE // 6) + '"}',
    "no UTF-8": b'{"input":"' + b"\xff" * SIZE + b'"}',
    "no JSON": "{" * SIZE,
    "nulls": json.dumps(dict.fromkeys(KNOBS)),
    "repeated fields": "{" + '"seed":"a",' * 20_000 + '"input":"x"}',
    "pauses": json.dumps({"input": "a[pause:10s]" * 300, "speed": 0.25, "loudness_lufs": -16}),
}
"""Bodies of `POST /tts`."""

TEXTS = {
    "a word and initials": ("a" * 2700 + " " + "b. " * 465)[:CHARS],
    "dots": "a" + "…" * (CHARS - 2) + "b",
    "brackets": ("((a! " * CHARS)[:CHARS],
    "quotes": "'" * 2000 + ("b. " * CHARS)[:2000],
    "marks": ("…" * 2048 + "b. " * CHARS)[:CHARS],
    "phonemes": "[[" * 1000 + ("b. " * CHARS)[:2000],
    "sentences": ("b! " * CHARS)[:CHARS],
    "signs that are long words": "√" * CHARS,
    "apostrophes": "'s" * 2000,
    "tags that do not end": ("<sub " * CHARS)[:CHARS],
    "signs that resemble digits": ("http://a.b/1² " * CHARS)[:CHARS],
    "line breaks": "\n" * (CHARS - 1) + "a",
}
"""Texts that are posted, and appended over the WebSocket."""

MESSAGES = {
    "no such type": '{"type":"x"}',
    "no JSON": "{",
    "numbers": "1" * 20_000,
    "unknown fields": json.dumps({"type": "response.create"} | shuffled(200)),
    "20,000 unknown fields": json.dumps(
        {"type": "response.create"} | {f"x{n}": 1 for n in range(20_000)}
    ),
    "130,000 steps": '{"type":"response.create","sampler_order":[' + "1," * 125_000 + "1]}",
}
"""Messages over the WebSocket, each sent many times."""


def post(body: str | bytes) -> Attack:
    """Return what sends a body, and sees that the answer is small."""

    def attack(client: httpx.Client) -> None:
        answer = client.post("/tts", content=body, headers=JSON)
        assert answer.status_code == 200 or (400 <= answer.status_code < 500), answer.status_code
        assert answer.status_code == 200 or len(answer.content) < 4096

    return attack


def codes(body: str) -> Attack:
    """Return what sends a body in place of the codes of a speech."""

    def attack(client: httpx.Client) -> None:
        spoken = client.post("/tts", json={"input": "Hi.", "max_duration_s": 0.3})
        path = f"/v1/audio/speech/{spoken.headers['x-request-id']}/audio"
        assert client.post(path, content=body, headers=JSON).status_code == 422

    return attack


def get(path: str) -> Attack:
    """Return what asks for something that anybody may ask for."""

    def attack(client: httpx.Client) -> None:
        assert client.get(path).status_code < 500

    return attack


def live_text(text: str) -> Attack:
    """Return what appends a text at once, and then letter by letter."""

    def attack(client: httpx.Client) -> None:
        with session(client) as live:
            for packets in ([text], [*text[:300]]):
                live.send(json.dumps({"type": "response.create", "max_duration_s": 0.1}))
                for number, packet in enumerate(packets):
                    message = {"type": "input_text.append", "sequence": number, "text": packet}
                    live.send(json.dumps(message))
                live.send('{"type":"response.cancel"}')
                until_done(live)

    return attack


def live_messages(message: str, times: int) -> Attack:
    """Return what sends a message many times before it reads an answer."""

    def attack(client: httpx.Client) -> None:
        with session(client) as live:
            for _ in range(times):
                live.send(message)
            for _ in range(times):
                answer = live.recv(timeout=60)
                assert len(answer) < 4096

    return attack


def raw(*parts: bytes) -> Attack:
    """Return what sends bytes over a connection of its own, and reads until that is closed."""

    def attack(client: httpx.Client) -> None:
        with connected(client) as connection, suppress(ConnectionError):
            for part in parts:
                connection.sendall(part)
            while connection.recv(65_536):
                pass

    return attack


def frames(opcode: Opcode, data: bytes, count: int) -> Attack:
    """Return what sends many small frames at once over a WebSocket."""

    def attack(client: httpx.Client) -> None:
        one = Frame(opcode, data).serialize(mask=True)
        with session(client) as live, suppress(OSError, ConnectionClosed):
            live.socket.settimeout(5)
            live.socket.sendall(one * count)
            time.sleep(0.2)

    return attack


@contextmanager
def session(client: httpx.Client) -> Iterator[ClientConnection]:
    """Open a WebSocket, and drop it."""
    with connect(url_of(client), subprotocols=[PROTOCOL], close_timeout=0.1) as live:  # type: ignore[list-item]
        live.recv(timeout=60)
        yield live


def until_done(live: ClientConnection) -> None:
    """Read on to the end of a response."""
    while True:
        got = live.recv(timeout=60)
        if isinstance(got, str) and json.loads(got)["type"] in {"response.done", "error"}:
            return


def _head(*headers: str, line: str = "POST /tts HTTP/1.1") -> bytes:
    return "\r\n".join([line, "Host: localhost", *headers, "", ""]).encode()


def last(*headers: str, line: str = "POST /tts HTTP/1.1", body: bytes = b"") -> Attack:
    """Return what sends a request after which the connection is closed."""
    return raw(_head(*headers, "Connection: close", line=line), body)


def form(body: bytes) -> Attack:
    """Return what uploads a form."""
    kind = "Content-Type: multipart/form-data; boundary=b"
    told = f"Content-Length: {len(body)}"
    return last(kind, told, line="POST /v1/audio/voices HTTP/1.1", body=body)


_FIELD = b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n\r\n'

ATTACKS: dict[str, Attack] = {
    **{f"body: {name}": post(body) for name, body in BODIES.items()},
    **{f"body: {name}": post(json.dumps(_text(text))) for name, text in TEXTS.items()},
    **{f"text: {name}": live_text(text) for name, text in TEXTS.items()},
    **{
        f"messages: {name}": live_messages(message, 200 if len(message) < 1000 else 5)
        for name, message in MESSAGES.items()
    },
    "frames: pings": frames(Opcode.PING, b"x" * 100, 3000),
    "frames: tiny texts": frames(Opcode.TEXT, b"", 40_000),
    "frames: tiny parts": frames(Opcode.CONT, b"", 40_000),
    "frames: pongs": frames(Opcode.PONG, b"", 40_000),
    "head: many headers": last(*["a:b"] * 6300),
    "head: one long header": last("a: " + "b" * 32_000),
    "head: a long path": last(line=f"GET /{'%41' * 10_000} HTTP/1.1"),
    "head: many protocols": raw(
        _head(
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Protocol: " + "a," * 16_000 + "b",
            line="GET /v1/audio/speech/stream HTTP/1.1",
        )
    ),
    "head: many accepts": last(
        "Accept: " + "text/plain;q=0.1," * 1850 + "a/b", line="GET /metrics HTTP/1.1"
    ),
    "body: tiny chunks": last(
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
        body=b"1\r\n \r\n" * 40_000 + b"0\r\n\r\n",
    ),
    "requests: pipelined": raw(
        _head(line="GET /health HTTP/1.1") * 2000, _head("Connection: close")
    ),
    "form: many fields": form(_FIELD * 4000),
    "form: no end": form(b"--b\r\n" + b"-" * 1_999_995),
    "form: many boundaries": form(b"\r\n--" * 250_000),
    "codes: empty lists": codes('{"utterances":[' + "[]," * 86_000 + "[]]}"),
    "codes: numbers": codes('{"utterances":[' + "1," * 129_000 + "1]}"),
    "codes: empty frames": codes('{"utterances":[[' + "[]," * 86_000 + "[1]]]}"),
    "codes: one list of numbers": codes('{"utterances":[[' + "1," * 129_000 + "1]]}"),
    "the document": get("/openapi.json"),
    "the metrics": get("/metrics"),
    "the voices": get("/v1/audio/voices"),
    "a long query": get("/v1/audio/speech/x/audio?" + "a=b&" * 8_000),
}
"""By what each does. Whatever is answered, it is answered; who waits for ever fails."""
