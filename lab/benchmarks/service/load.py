"""Load benchmark: throughput, time to first sound and playback gaps of a server.

    python -m lab.benchmarks.service.load --out load.json
    python -m lab.benchmarks.service.load --search --sentences 3 --out load.json

Closed loop: N clients, each of which sends its next request when the last has ended; the figure is
seconds of audio a second while all were busy. Open loop: requests arrive as a Poisson process at
the rate at which S listeners play at once on average; with `--search` S grows until a client hears
a gap, is refused, or waits too long. First sound is the arrival of the first sample over -50 dBFS.
Clients run on the same machine and cost it some percent. Figures need an idle machine.
"""

import argparse
import asyncio
import math
import random
import sys
from collections.abc import Iterator, Sequence
from statistics import fmean
from time import perf_counter
from typing import Any

import httpx2

from app.commands.bench.listeners import (
    FIRST_AUDIO_MS,
    Figures,
    ReceivedSpeech,
    audio_until,
    closed_loop,
    figures,
    receive,
)
from lab.benchmarks.harness.http_client import open_client
from lab.benchmarks.harness.report import Target, argument_parser, conclude, machine, target
from lab.benchmarks.harness.served import served_or
from lab.benchmarks.harness.texts import texts

WARM_UP = 4


async def open_loop(
    client: httpx2.AsyncClient, streams: float, inputs: Sequence[str], text_s: float, seed: int = 0
) -> Figures:
    """Send requests as a Poisson process, so that ``streams`` listeners play at once on average.

    ``text_s`` is the average length of a text's audio in seconds.
    """
    began_s = perf_counter()
    received = await arriving(client, inputs, streams / text_s, seed)
    return figures(f"Poisson, {streams:g} streams", received, audio_rate(received, began_s))


def audio_rate(received: Sequence[ReceivedSpeech], began_s: float) -> float:
    """Return the seconds of audio received a second, from a time to the last byte."""
    ended_s = max(one.sent_s + one.wall_s for one in received)
    return audio_until(received, ended_s) / (ended_s - began_s)


async def arriving(
    client: httpx2.AsyncClient, inputs: Sequence[str], rate_hz: float, seed: int
) -> list[ReceivedSpeech]:
    """Send a request for each text as a Poisson process and return the responses."""
    received: list[ReceivedSpeech] = []

    async def listen(number: int, text: str) -> None:
        received.append(await receive(client, text, seed=number))

    began_s = perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, (text, at_s) in enumerate(
            zip(inputs, poisson(rate_hz, len(inputs), seed), strict=True)
        ):
            await asyncio.sleep(max(0.0, began_s + at_s - perf_counter()))
            group.create_task(listen(number, text))
    return received


def poisson(rate_hz: float, count: int, seed: int) -> Iterator[float]:
    """Yield arrival times in seconds."""
    generator, at_s = random.Random(seed), 0.0
    for _ in range(count):
        at_s += generator.expovariate(rate_hz)
        yield at_s


async def search(
    client: httpx2.AsyncClient, inputs: Sequence[str], text_s: float
) -> tuple[float, list[Figures]]:
    """Find the largest load that is `Figures.smooth`, by bisection.

    Returns the load in streams, to a half (0 if not even half a stream is), and all figures.
    """
    tried = list[Figures]()
    best, too_many = 0.0, math.inf
    while too_many - best > 0.5:
        streams = best + 1 if math.isinf(too_many) else (best + too_many) / 2
        tried.append(await open_loop(client, streams, inputs, text_s))
        if tried[-1].smooth:
            best = streams
        else:
            too_many = streams
    return best, tried


async def measure(url: str, args: argparse.Namespace) -> tuple[list[Figures], list[Target]]:
    """Run the loads; single requests come first, as they give the length of a text."""
    rows, targets = list[Figures](), list[Target]()
    async with open_client(url) as client:
        for text in texts(WARM_UP):
            await receive(client, text)
        lone = texts(args.requests, sentences_each=args.sentences)
        alone = [await receive(client, text, seed=seed) for seed, text in enumerate(lone)]
        text_s = fmean(one.audio_s for one in alone)
        rows.append(figures("one", alone, text_s / fmean(one.wall_s for one in alone)))
        targets += targets_of_one(rows[-1])
        for clients in args.closed:
            inputs = texts(args.requests * clients, sentences_each=args.sentences)
            rows.append(await closed_loop(client, clients, inputs))
            if clients == 8:
                speed = rows[-1].audio_a_second
                targets.append(target("8 at once, audio s a second", speed, ">=", 6))
        inputs = texts(args.arrivals, sentences_each=args.sentences)
        if args.search:
            best, tried = await search(client, inputs, text_s)
            rows += tried
            targets.append(target("most streams without a gap", best, ">=", 4))
        else:
            rows.append(await open_loop(client, args.streams, inputs, text_s))
            targets += targets_of_many(rows[-1], args.streams)
    return rows, targets


def targets_of_one(row: Figures) -> list[Target]:
    """Return the targets of a single stream."""
    return [
        target("one stream, times real time", row.audio_a_second, ">=", 2.5),
        target("one stream, first sound p50, ms", row.first_p50_ms, "<", 200),
    ]


def targets_of_many(row: Figures, streams: float) -> list[Target]:
    """Return the targets of many streams."""
    name = f"{streams:g} streams"
    return [
        target(f"{name}, with a gap or refused", row.gaps + row.failed, "==", 0),
        target(f"{name}, first sound p95, ms", row.first_p95_ms, "<", FIRST_AUDIO_MS),
    ]


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, url=True)
    parser.add_argument("--requests", type=int, default=12, help="of each closed-loop client")
    parser.add_argument("--closed", type=int, nargs="*", default=[1, 2, 4, 8], help="clients")
    parser.add_argument("--arrivals", type=int, default=60, help="of each open loop")
    parser.add_argument("--streams", type=float, default=4.0, help="of the open loop")
    parser.add_argument("--search", action="store_true", help="find the most streams instead")
    parser.add_argument("--sentences", type=int, default=1, help="of a text")
    return parser.parse_args()


def main() -> int:
    """Run the command line."""
    args, started = _arguments(), machine()
    with served_or(args.url, max_queue=256) as url:
        rows, targets = asyncio.run(measure(url, args))
    table: list[dict[str, Any]] = [vars(row) for row in rows]
    return conclude(table, targets, args.out, started)


if __name__ == "__main__":
    sys.exit(main())
