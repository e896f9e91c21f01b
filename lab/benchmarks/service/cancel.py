"""Cancellation benchmark: resources left by clients that disconnect.

    python -m lab.benchmarks.service.cancel --out cancel.json

Clients disconnect at random moments, in turn from HTTP (whole and streamed) and the WebSocket,
first one at a time, then in groups; the time until no job runs and no slot is used is measured,
polls included. Then more requests, some complete and some disconnected, while memory is read: its
slope, and the tasks, threads and files left in the end.
"""

import argparse
import asyncio
import os
import random
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

import httpx2
import numpy as np
from tqdm import tqdm

from app.commands.bench.listeners import ReceivedSpeech, percentiles, receive
from lab.benchmarks.harness.http_client import open_client
from lab.benchmarks.harness.report import Target, argument_parser, conclude, machine, target
from lab.benchmarks.harness.served import served
from lab.benchmarks.harness.texts import texts
from lab.benchmarks.harness.vitals import Vitals, ask_vitals, settled_vitals
from lab.benchmarks.harness.websocket_client import receive_live

FREE_WITHIN_MS = 100
GROWTH_BYTES = 20_000  # a request
AT_MOST_S = 30.0  # timeout for the server to become idle
TOGETHER = 8
POLL_S = 0.002
SPARE = {"threads": (os.cpu_count() or 1) + 4}
"""Threads that may remain: asyncio's pool grows to this size. A leak would be one a client."""
READ_EVERY = 10  # requests between two readings of memory
STAY = 2 / 3  # share of requests that are not disconnected

Listening = Coroutine[Any, Any, ReceivedSpeech]
Clients = Sequence[Callable[[str, int], Listening]]


def clients(url: str, client: httpx2.AsyncClient) -> Clients:
    """Return request functions of a text and a seed: streamed, whole, WebSocket."""
    return (
        lambda text, seed: receive(client, text, seed=seed, stream=True),
        lambda text, seed: receive(client, text, seed=seed, stream=False),
        lambda text, seed: receive_live(url, text, seed=seed),
    )


async def leave(response: Listening, after_s: float) -> None:
    """Receive a response and disconnect after a time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(after_s):
            await response


async def until_idle(client: httpx2.AsyncClient) -> float:
    """Wait until the server is idle; return the seconds that took."""
    began_s = perf_counter()
    async with asyncio.timeout(AT_MOST_S):
        while not (await ask_vitals(client)).idle:
            await asyncio.sleep(POLL_S)
    return perf_counter() - began_s


class LeavingClients:
    """Disconnects clients and measures how long the server takes to become idle."""

    def __init__(self, url: str, client: httpx2.AsyncClient, inputs: Sequence[str], text_s: float):
        self._clients = clients(url, client)
        self._inputs, self._text_s = inputs, text_s
        self._generator = random.Random(0)
        self._asking = open_client(url)

    async def one_at_a_time(self) -> list[float]:
        """Disconnect one client at a time; return the seconds to idle of each."""
        took_s = []
        async with self._asking:
            for number in tqdm(range(len(self._inputs)), desc="one at a time", disable=None):
                await leave(self._listen(number), self._generator.uniform(0, self._text_s))
                took_s.append(await until_idle(self._asking))
        return took_s

    async def together(self, url: str) -> list[float]:
        """Disconnect clients in groups; return the seconds to idle of each group."""
        took_s = []
        async with open_client(url) as asking:
            for start in tqdm(range(0, len(self._inputs), TOGETHER), desc="together", disable=None):
                numbers = range(start, min(start + TOGETHER, len(self._inputs)))
                group = [asyncio.create_task(self._listen(number)) for number in numbers]
                await asyncio.sleep(self._generator.uniform(0, self._text_s))
                for task in group:
                    task.cancel()
                await asyncio.gather(*group, return_exceptions=True)
                took_s.append(await until_idle(asking))
        return took_s

    def _listen(self, number: int) -> Listening:
        return self._clients[number % len(self._clients)](self._inputs[number], number)


async def grow(url: str, inputs: Sequence[str], text_s: float) -> list[float]:
    """Send requests, four at a time, a third of them disconnected; return the memory meanwhile.

    That is bytes after every ten requests, with the server idle and its garbage collected.
    """
    generator, memory = random.Random(1), list[float]()
    async with open_client(url) as client, open_client(url) as asking:
        manners = clients(url, client)

        async def listen(waiting: Iterator[int]) -> None:
            for number in waiting:
                speech = manners[number % len(manners)](inputs[number], number)
                stays = generator.random() < STAY
                await leave(speech, AT_MOST_S if stays else generator.uniform(0, text_s))

        for start in tqdm(range(0, len(inputs), READ_EVERY), desc="memory", disable=None):
            waiting = iter(range(start, min(start + READ_EVERY, len(inputs))))
            await asyncio.gather(*(listen(waiting) for _ in range(4)))
            await until_idle(asking)
            memory.append(float((await ask_vitals(asking, collect=True)).rss_bytes))
    return memory


def slope(values: Sequence[float], every: float) -> float:
    """Return the least-squares slope of values that are ``every`` units apart."""
    return float(np.polyfit(np.arange(len(values)) * every, values, 1)[0])


async def measure(
    url: str, count: int, requests: int
) -> tuple[list[dict[str, Any]], list[Target], list[float]]:
    """Return the table, the targets, and the memory in bytes after every ten requests."""
    inputs = texts(max(count, requests))
    async with open_client(url) as client:
        # Fills caches and thread pools and opens connections, which happens once.
        warm = await asyncio.gather(
            *(
                receive(client, text, stream=number % 2 == 0)
                for number, text in enumerate(inputs[:8])
            )
        )
    text_s = float(np.mean([one.audio_s for one in warm])) / 2
    await grow(url, inputs[: requests // 5], text_s)
    before = await settled_vitals(url)
    async with open_client(url) as client:
        alone_s = await LeavingClients(url, client, inputs[:count], text_s).one_at_a_time()
        together_s = await LeavingClients(url, client, inputs[:count], text_s).together(url)
    memory = await grow(url, inputs[:requests], text_s)
    after = await settled_vitals(url)
    rows = [
        free_row(f"{count} clients, one at a time", alone_s),
        free_row(f"{count} clients, {TOGETHER} at a time", together_s),
    ]
    return rows, targets_of(alone_s + together_s, after, before, memory), memory


def free_row(what: str, took_s: Sequence[float]) -> dict[str, Any]:
    """Return a row of the table."""
    p50, p95, most = (1000 * one for one in percentiles(took_s, 50, 95, 100))
    return {"who left": what, "free p50, ms": p50, "free p95, ms": p95, "free at most, ms": most}


def targets_of(
    took_s: Sequence[float], after: Vitals, before: Vitals, memory: Sequence[float]
) -> list[Target]:
    """Return the targets."""
    left = after.left_since(before)
    return [
        target("slots free, at most, ms", 1000 * max(took_s), "<", FREE_WITHIN_MS),
        *(target(f"{name} left", count, "<=", SPARE.get(name, 0)) for name, count in left.items()),
        target("memory, bytes a request", slope(memory, READ_EVERY), "<", GROWTH_BYTES),
    ]


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("--clients", type=int, default=100, help="who leave")
    parser.add_argument("--requests", type=int, default=500, help="over which memory is read")
    return parser.parse_args()


def main() -> int:
    """Run the command line."""
    args, started = _arguments(), machine()
    with served(max_queue=64) as url:
        rows, targets, memory = asyncio.run(measure(url, args.clients, args.requests))
    return conclude(rows, targets, args.out, started, {"memory_bytes": memory})


if __name__ == "__main__":
    sys.exit(main())
