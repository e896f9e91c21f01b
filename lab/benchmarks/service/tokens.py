"""From a language model's first token to the first audible sound, over each WebSocket.

    python -m lab.benchmarks.service.tokens --out tokens.json
    python -m lab.benchmarks.service.tokens --lookahead 0 2 --lines lab/training/judging/agents.txt

A text is sent as a language model would write it, token by token at a steady rate; the clock starts
with the first token and stops at the first sample over -50 dBFS. One speech at a time, over a
socket that is open already, as an agent keeps it. With ``--lookahead`` the socket of our own is
measured with each `text_lookahead_words`, and no other. `sentence` is when the token came that ends
the first sentence: no service that speaks whole sentences can begin before. Figures need an idle
machine.
"""

import asyncio
import json
import re
import sys
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from app.api.realtime.valle import PROTOCOL
from app.commands.bench.listeners import ReceivedSpeech, percentiles
from lab.benchmarks.harness.report import argument_parser, conclude, machine
from lab.benchmarks.harness.served import served_or
from lab.benchmarks.harness.texts import texts

RATES: Final = (20, 40, 80)
RATE_HZ: Final = 24_000
_TOKEN: Final = re.compile(r"\s*\w{1,5}|\s*[^\w\s]")
_ELEVENLABS: Final = (
    "/v1/text-to-speech/heart/multi-stream-input?output_format=pcm_24000&auto_mode="
)


def tokens(text: str) -> list[str]:
    """Return a text in pieces of some four characters, with the space before each word."""
    return _TOKEN.findall(text)


def sentences_in_pairs(path: Path, most: int) -> list[str]:
    """Return each sentence of a file with the next one: it has ended once that begins."""
    lines = path.read_text("utf-8").splitlines()
    pairs = zip(lines, [*lines[1:], lines[0]], strict=True)
    return list(islice(map(" ".join, pairs), most))


@dataclass(frozen=True)
class Take:
    """One speech."""

    sentence_s: float  # seconds from the first token to that which ends the first sentence
    # Seconds from the first token to the first audible sound; None without any
    sound_s: float | None


class Socket:
    """A protocol: how tokens are sent, and what is sound of what comes."""

    def __init__(self, path: str, subprotocol: str | None = None) -> None:
        self.path, self.subprotocol = path, subprotocol

    def messages(self, number: int, pieces: Sequence[str]) -> list[dict[str, Any]]:
        """Return a message for each piece of a text, some with others beside them."""
        raise NotImplementedError

    def opening(self, number: int) -> dict[str, Any]:
        """Return the message before the first token."""
        raise NotImplementedError

    def closing(self, number: int) -> dict[str, Any]:
        """Return the message that stops a speech."""
        raise NotImplementedError

    def sound(self, message: str | bytes) -> bytes:
        """Return the sound in a message."""
        raise NotImplementedError


class Ours(Socket):
    """Protocol `valle.speech.v1`, a message a token; ``knobs`` are those of the response."""

    def __init__(self, **knobs: int) -> None:
        super().__init__("/v1/audio/speech/stream", PROTOCOL)
        self._knobs = knobs

    def messages(self, number: int, pieces: Sequence[str]) -> list[dict[str, Any]]:  # noqa: ARG002
        """Return a message for each token."""
        return [
            {"type": "input_text.append", "sequence": place, "text": piece}
            for place, piece in enumerate(pieces)
        ]

    def opening(self, number: int) -> dict[str, Any]:
        """Return the message that creates a response."""
        return {"type": "response.create", "voice": "heart", "seed": number, **self._knobs}

    def closing(self, number: int) -> dict[str, Any]:  # noqa: ARG002
        """Return the message that cancels it."""
        return {"type": "response.cancel"}

    def sound(self, message: str | bytes) -> bytes:
        """Return a binary frame."""
        return message if isinstance(message, bytes) else b""


class ElevenLabs(Socket):
    """ElevenLabs' contexts, a message a token."""

    def messages(self, number: int, pieces: Sequence[str]) -> list[dict[str, Any]]:
        """Return a message for each token."""
        return [{"text": piece, "context_id": f"{number}"} for piece in pieces]

    def opening(self, number: int) -> dict[str, Any]:
        """Return the message that opens a context."""
        return {"text": " ", "context_id": f"{number}"}

    def closing(self, number: int) -> dict[str, Any]:
        """Return the message that closes it."""
        return {"context_id": f"{number}", "close_context": True}

    def sound(self, message: str | bytes) -> bytes:
        """Return the sound of a message."""
        return b64decode(json.loads(message).get("audio") or "")


class Sentences(ElevenLabs):
    """The same, a message a sentence, as Pipecat and LiveKit send them."""

    def messages(self, number: int, pieces: Sequence[str]) -> list[dict[str, Any]]:
        """Return a message for the token that ends each sentence, and empty ones for the rest."""
        held, messages = "", list[dict[str, Any]]()
        for piece in pieces:
            held += piece
            ended = piece in {".", "!", "?"}
            messages.append({"text": f"{held} " if ended else "", "context_id": f"{number}"})
            held = "" if ended else held
        return messages


SOCKETS: Final[Mapping[str, Socket]] = {
    "ours, tokens": Ours(),
    "ElevenLabs, tokens": ElevenLabs(_ELEVENLABS + "false"),
    "ElevenLabs, sentences": Sentences(_ELEVENLABS + "true"),
}


async def take(
    socket: ClientConnection, protocol: Socket, number: int, pieces: Sequence[str], rate: float
) -> Take:
    """Send a text at a rate of tokens a second; return when it was first heard."""
    await socket.send(json.dumps(protocol.opening(number)))
    began_s = perf_counter()
    sentence = next(place for place, piece in enumerate(pieces) if piece in {".", "!", "?"})

    async def write() -> None:
        for place, message in enumerate(protocol.messages(number, pieces)):
            await asyncio.sleep(max(0.0, began_s + place / rate - perf_counter()))
            if message.get("text"):
                await socket.send(json.dumps(message))

    writing = asyncio.create_task(write())
    try:
        sound_s = await asyncio.wait_for(_first_sound_s(socket, protocol, began_s), 30)
    except TimeoutError:
        sound_s = None
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await socket.send(json.dumps(protocol.closing(number)))
    async for message in _until_silent(socket):
        protocol.sound(message)
    return Take(sentence / rate, sound_s)


async def _first_sound_s(socket: ClientConnection, protocol: Socket, began_s: float) -> float:
    """Return when the first audible sample came."""
    arrivals, sound = list[tuple[float, int]](), b""
    while True:
        part = protocol.sound(await socket.recv())
        if not part:
            continue
        arrivals.append((perf_counter() - began_s, len(part)))
        sound += part
        received = ReceivedSpeech(200, rate_hz=RATE_HZ, arrivals=tuple(arrivals), sound=sound)
        if (first_s := received.first_audio_s) is not None:
            return first_s


async def _until_silent(socket: ClientConnection) -> AsyncIterator[str | bytes]:
    """Yield what still comes, until nothing does for a moment."""
    while True:
        try:
            yield await asyncio.wait_for(socket.recv(), 0.3)
        except TimeoutError:
            return


async def measure(
    url: str, inputs: Sequence[str], sockets: Mapping[str, Socket], rates: Sequence[int]
) -> list[dict[str, Any]]:
    """Return a row for each protocol and rate; the first take of each is not counted."""
    rows, number = list[dict[str, Any]](), 0
    address = url.replace("http", "ws", 1)
    for name, protocol in sockets.items():
        offered = [Subprotocol(protocol.subprotocol)] if protocol.subprotocol else None
        for rate in rates:
            taken = list[Take]()
            async with connect(address + protocol.path, subprotocols=offered, proxy=None) as socket:
                for text in inputs:
                    number += 1
                    taken.append(await take(socket, protocol, number, tokens(text), rate))
            rows.append(row(name, rate, taken[1:]))
            shown = {key: value for key, value in rows[-1].items() if key != "each"}
            print(json.dumps(shown), file=sys.stderr, flush=True)
    return rows


def row(name: str, rate: int, taken: Sequence[Take]) -> dict[str, Any]:
    """Return the figures of takes at one rate, in milliseconds."""
    heard = [one for one in taken if one.sound_s is not None]
    sound = percentiles([1000 * (one.sound_s or 0.0) for one in heard], 50, 95)
    after = percentiles([1000 * ((one.sound_s or 0.0) - one.sentence_s) for one in heard], 50, 95)
    sentence = percentiles([1000 * one.sentence_s for one in taken], 50)
    return {
        "socket": name,
        "tokens a second": rate,
        "takes": len(taken),
        "silent": len(taken) - len(heard),
        "sentence p50 ms": sentence[0],
        "first sound p50 ms": sound[0],
        "first sound p95 ms": sound[1],
        "after the sentence p50 ms": after[0],
        "after the sentence p95 ms": after[1],
        "each": [asdict(one) for one in taken],
    }


def main() -> int:
    """Measure, print the table, write the report."""
    parser = argument_parser(__doc__, url=True)
    parser.add_argument("--takes", type=int, default=20, help="speeches of each kind and rate")
    parser.add_argument("--rates", type=int, nargs="+", default=RATES, help="tokens a second")
    parser.add_argument("--lookahead", type=int, nargs="+", help="text_lookahead_words, each")
    parser.add_argument("--lines", type=Path, help="a file of sentences, one a line")
    given = parser.parse_args()
    started = machine()
    inputs = texts(given.takes + 1, sentences_each=2)
    if given.lines is not None:
        inputs = sentences_in_pairs(given.lines, given.takes + 1)
    sockets = SOCKETS
    if given.lookahead is not None:
        sockets = {f"look-ahead {n}": Ours(text_lookahead_words=n) for n in given.lookahead}
    with served_or(given.url) as url:
        rows = asyncio.run(measure(url, inputs, sockets, given.rates))
    table = [{name: value for name, value in one.items() if name != "each"} for one in rows]
    return conclude(table, [], given.out, started, {"takes": rows})


if __name__ == "__main__":
    sys.exit(main())
