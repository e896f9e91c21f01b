"""Gaps that are heard in speech whose text comes token by token, alone and beside other streams.

    python -m lab.benchmarks.service.gaps --lookahead 2 --out gaps.json
    python -m lab.benchmarks.service.gaps --lookahead 2 --beside 4

Each text is sent at a steady rate, so no gap is its author's. A listener plays from the first byte
on, without a buffer. The streams beside it are whole sentences over HTTP, each played to its end
before the next is asked for. Figures need an idle machine.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from app.api.realtime.valle import PROTOCOL
from app.commands.bench.listeners import GAP_S, ReceivedSpeech, figures, percentiles, receive
from lab.benchmarks.harness.report import argument_parser, conclude, machine
from lab.benchmarks.harness.served import served_or
from lab.benchmarks.harness.texts import texts
from lab.benchmarks.service.tokens import Ours, sentences_in_pairs, tokens

RATES: Final = (10, 14, 20, 40, 80)
_LONGEST_S: Final = 60.0
_SETTLED_S: Final = 1.0


async def speak(
    socket: ClientConnection, protocol: Ours, number: int, text: str, rate: float
) -> ReceivedSpeech:
    """Send a text at a rate of tokens a second, and receive all of its speech."""
    await socket.send(json.dumps(protocol.opening(number)))
    began_s = perf_counter()

    async def write() -> None:
        messages = protocol.messages(number, tokens(text))
        for place, message in enumerate(messages):
            await asyncio.sleep(max(0.0, began_s + place / rate - perf_counter()))
            await socket.send(json.dumps(message))
        await socket.send(json.dumps({"type": "input_text.end", "sequence": len(messages)}))

    writing = asyncio.create_task(write())
    arrivals: list[tuple[float, int]] = []
    sound = b""
    report: dict[str, Any] = {}
    broke: str | None = None
    try:
        async with asyncio.timeout(_LONGEST_S):
            while report.get("type") not in {"response.done", "error"}:
                message = await socket.recv()
                if isinstance(message, bytes):
                    arrivals.append((perf_counter() - began_s, len(message)))
                    sound += message
                else:
                    report = json.loads(message)
    except TimeoutError:
        broke = "silence"
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing
    if report.get("finish_reason") not in {"stop", "length"}:
        broke = json.dumps(report)
    headers = {"unwritten_s": f"{(report.get('timings') or {}).get('unwritten_s', 0.0)}"}
    return ReceivedSpeech(200, "", headers, 24_000, began_s, tuple(arrivals), sound, broke)


async def others(url: str, count: int, inputs: Iterator[str]) -> None:
    """Listen to so many streams, one after the other each, until cancelled."""
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=_LONGEST_S) as client:

        async def listen() -> None:
            while True:
                one = await receive(client, next(inputs))
                first_s = one.first_audio_s or 0.0
                await asyncio.sleep(max(0.1, first_s + one.audio_s - one.wall_s))

        await asyncio.gather(*(listen() for _ in range(count)))


async def measure(
    url: str, inputs: Sequence[str], lookahead: int, rates: Sequence[int], beside: int
) -> list[dict[str, Any]]:
    """Return a row for each rate."""
    rows: list[dict[str, Any]] = []
    protocol = Ours(text_lookahead_words=lookahead)
    address = url.replace("http", "ws", 1) + protocol.path
    crowd = asyncio.create_task(others(url, beside, cycle(texts(40, sentences_each=2))))
    await asyncio.sleep(_SETTLED_S)
    try:
        for rate in rates:
            received = list[ReceivedSpeech]()
            async with connect(address, subprotocols=[Subprotocol(PROTOCOL)], proxy=None) as socket:
                for number, text in enumerate(inputs):
                    received.append(await speak(socket, protocol, number, text, rate))
            rows.append(row(lookahead, rate, beside, received))
            shown = {key: value for key, value in rows[-1].items() if key != "late"}
            print(json.dumps(shown), file=sys.stderr, flush=True)
            if crowd.done():
                crowd.result()
    finally:
        crowd.cancel()
        with suppress(asyncio.CancelledError):
            await crowd
    return rows


def row(
    lookahead: int, rate: int, beside: int, received: Sequence[ReceivedSpeech]
) -> dict[str, Any]:
    """Return the figures of speeches at one rate."""
    found = figures("", received, 0.0)
    first = [1000 * one.first_audio_s for one in received if one.first_audio_s is not None]
    gaps_ms = [1000 * one.underrun_s for one in received if one.ok and one.underrun_s > GAP_S]
    told = sum(float(one.headers.get("unwritten_s", 0.0)) for one in received)
    p50, p95 = percentiles(first, 50, 95)
    return {
        "look-ahead": lookahead,
        "tokens a second": rate,
        "streams beside": beside,
        "speeches": len(received),
        "failed": found.failed,
        "with a gap": found.gaps,
        "longest gaps of a speech ms": round(max(gaps_ms, default=0.0), 1),
        "told as the author's ms": round(1000 * told, 1),
        "first sound p50 ms": round(p50),
        "first sound p95 ms": round(p95),
        "late": found.late,
        "errors": found.errors,
    }


def main() -> int:
    """Measure, print the table, write the report."""
    parser: argparse.ArgumentParser = argument_parser(__doc__, url=True)
    parser.add_argument("--lookahead", type=int, default=2, help="text_lookahead_words")
    parser.add_argument("--takes", type=int, default=100, help="texts at each rate")
    parser.add_argument("--rates", type=int, nargs="+", default=RATES, help="tokens a second")
    parser.add_argument("--beside", type=int, default=0, help="streams beside")
    parser.add_argument("--lines", type=Path, help="a file of sentences, one a line")
    given = parser.parse_args()
    started = machine()
    inputs = texts(given.takes)
    if given.lines is not None:
        inputs = sentences_in_pairs(given.lines, given.takes)
    with served_or(given.url) as url:
        rows = asyncio.run(measure(url, inputs, given.lookahead, given.rates, given.beside))
    table = [{k: v for k, v in one.items() if k not in {"late", "errors"}} for one in rows]
    return conclude(table, [], given.out, started, {"rows": rows})


if __name__ == "__main__":
    sys.exit(main())
