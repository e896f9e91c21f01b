"""How many listeners a server can serve: throughput, first sounds, gaps.

    python -m benchmarks.service.load --out load.json
    python -m benchmarks.service.load --search --sentences 3 --out load.json

Closed loop: N clients, each of whom asks again as soon as it was served, and the seconds of sound a
second while all were busy. Open loop: requests come as a Poisson process, whoever is being served,
at the rate at which S listeners would be playing at once; with `--search` S grows until somebody
hears a gap, is refused, or waits too long. First sound is the byte that holds the first sample over
-50 dBFS. Clients run on the same machine and cost it some percent. Figures need an idle machine.
"""

import argparse
import asyncio
import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter
from typing import Any

import httpx
import numpy as np

from benchmarks.harness.listener import Heard, hear, listening
from benchmarks.harness.report import Gate, conclude, machine
from benchmarks.harness.served import argument_parser, served_or
from benchmarks.harness.texts import texts

GAP_S = 0.001
"""A shorter wait is the client's own clock."""
FIRST_AUDIO_S = 0.6  # p95 that many streams may take
WARM_UP = 4


@dataclass(frozen=True)
class Figures:
    """What the listeners of one load heard.

    Attributes:
        load: In words.
        requests: How many.
        failed: Refused or cut off.
        audio_a_second: Seconds of sound a second, while the load lasted.
        first_p50_ms: To the first audible byte; of those who heard no gap.
        first_p95_ms: The same.
        first_p99_ms: The same.
        gaps: Who waited in the middle.
        underrun_s: For how long, together.
        rtf_p50: Seconds to the last byte over seconds of sound.
        rtf_p95: The same.
    """

    load: str
    requests: int
    failed: int
    audio_a_second: float
    first_p50_ms: float
    first_p95_ms: float
    first_p99_ms: float
    gaps: int
    underrun_s: float
    rtf_p50: float
    rtf_p95: float

    @property
    def smooth(self) -> bool:
        """Whether everybody was served without a gap and soon enough."""
        return not (self.failed or self.gaps) and self.first_p95_ms < 1000 * FIRST_AUDIO_S


def figures(load: str, heard: Sequence[Heard], audio_a_second: float) -> Figures:
    """Sum up what was heard under a load."""
    good = [one for one in heard if one.ok]
    gaps = [one.underrun_s for one in good]
    firsts = [one.first_audio_s for one in good if one.underrun_s <= GAP_S]
    first_ms = [1000 * first for first in firsts if first is not None]
    p50, p95, p99 = percentiles(first_ms, 50, 95, 99)
    factors = percentiles([one.wall_s / one.audio_s for one in good if one.sound], 50, 95)
    return Figures(
        load=load,
        requests=len(heard),
        failed=len(heard) - len(good),
        audio_a_second=audio_a_second,
        first_p50_ms=p50,
        first_p95_ms=p95,
        first_p99_ms=p99,
        gaps=sum(gap > GAP_S for gap in gaps),
        underrun_s=sum(gaps),
        rtf_p50=factors[0],
        rtf_p95=factors[1],
    )


def percentiles(values: Sequence[float], *percents: float) -> list[float]:
    """Return percentiles; not a number where there is no value."""
    return [float(np.percentile(values, one)) if values else float("nan") for one in percents]


async def closed_loop(client: httpx.AsyncClient, clients: int, said: Sequence[str]) -> Figures:
    """Let clients ask one text after another until all are spoken."""
    left, heard = iter(enumerate(said)), list[Heard]()
    over_s: list[float] = []  # when each client found nothing left

    async def listen() -> None:
        for seed, text in left:
            heard.append(await hear(client, text, seed=seed))
        over_s.append(perf_counter())

    began_s = perf_counter()
    await asyncio.gather(*(listen() for _ in range(clients)))
    ended_s = min(over_s)  # from here on not all were busy
    return figures(f"{clients} at once", heard, _audio_until(heard, ended_s) / (ended_s - began_s))


async def open_loop(
    client: httpx.AsyncClient, streams: float, said: Sequence[str], text_s: float, seed: int = 0
) -> Figures:
    """Let listeners come at random.

    Args:
        client: Of the server.
        streams: How many would be playing at once, on average.
        said: A text a listener.
        text_s: Seconds that a text takes to say, on average.
        seed: Of when they come.
    """
    began_s = perf_counter()
    heard = await arriving(client, said, streams / text_s, seed)
    ended_s = max(one.sent_s + one.wall_s for one in heard)
    name = f"Poisson, {streams:g} streams"
    return figures(name, heard, _audio_until(heard, ended_s) / (ended_s - began_s))


async def arriving(
    client: httpx.AsyncClient, said: Sequence[str], rate_hz: float, seed: int
) -> list[Heard]:
    """Let a listener come for each text, at random; return what they heard.

    Args:
        client: Of the server.
        said: A text a listener.
        rate_hz: How many come in a second, on average.
        seed: Of when they come.
    """
    heard: list[Heard] = []

    async def listen(number: int, text: str) -> None:
        heard.append(await hear(client, text, seed=number))

    began_s = perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, (text, at_s) in enumerate(
            zip(said, poisson(rate_hz, len(said), seed), strict=True)
        ):
            await asyncio.sleep(max(0.0, began_s + at_s - perf_counter()))
            group.create_task(listen(number, text))
    return heard


def poisson(rate_hz: float, count: int, seed: int) -> Iterator[float]:
    """Yield the seconds at which so many come."""
    generator, at_s = random.Random(seed), 0.0
    for _ in range(count):
        at_s += generator.expovariate(rate_hz)
        yield at_s


async def search(
    client: httpx.AsyncClient, said: Sequence[str], text_s: float
) -> tuple[float, list[Figures]]:
    """Find the largest load that everybody hears smoothly.

    Returns:
        In streams, in halves; 0 where not even half of one is. And the figures of all tried.
    """
    tried = list[Figures]()
    best, too_many = 0.0, math.inf
    while too_many - best > 0.5:
        streams = best + 1 if math.isinf(too_many) else (best + too_many) / 2
        tried.append(await open_loop(client, streams, said, text_s))
        if tried[-1].smooth:
            best = streams
        else:
            too_many = streams
    return best, tried


def _audio_until(heard: Sequence[Heard], ends_s: float) -> float:
    """Return the seconds of sound that had come by then."""
    return sum(
        count / 2 / one.rate_hz
        for one in heard
        for at_s, count in one.arrivals
        if one.ok and one.sent_s + at_s <= ends_s
    )


async def measure(url: str, args: argparse.Namespace) -> tuple[list[Figures], list[Gate]]:
    """Measure what was asked for; one stream comes first, as its length is that of the others."""
    rows, gates = list[Figures](), list[Gate]()
    async with listening(url) as client:
        for text in texts(WARM_UP):
            await hear(client, text)
        lone = texts(args.requests, sentences_each=args.sentences)
        alone = [await hear(client, text, seed=seed) for seed, text in enumerate(lone)]
        text_s = fmean(one.audio_s for one in alone)
        rows.append(figures("one", alone, text_s / fmean(one.wall_s for one in alone)))
        gates += gates_of_one(rows[-1])
        for clients in args.closed:
            said = texts(args.requests * clients, sentences_each=args.sentences)
            rows.append(await closed_loop(client, clients, said))
            if clients == 8:
                speed = rows[-1].audio_a_second
                gates.append(Gate("8 at once, audio s a second", speed, ">= 6", speed >= 6))
        said = texts(args.arrivals, sentences_each=args.sentences)
        if args.search:
            best, tried = await search(client, said, text_s)
            rows += tried
            gates.append(Gate("most streams without a gap", best, ">= 4", best >= 4))
        else:
            rows.append(await open_loop(client, args.streams, said, text_s))
            gates += gates_of_many(rows[-1], args.streams)
    return rows, gates


def gates_of_one(row: Figures) -> list[Gate]:
    """Return what is asked of a lone stream."""
    speed, first_ms = row.audio_a_second, row.first_p50_ms
    return [
        Gate("one stream, times real time", speed, ">= 2.5", speed >= 2.5),
        Gate("one stream, first sound p50, ms", first_ms, "< 200", first_ms < 200),
    ]


def gates_of_many(row: Figures, streams: float) -> list[Gate]:
    """Return what is asked of many."""
    failed, first_ms = row.gaps + row.failed, row.first_p95_ms
    bound_ms = 1000 * FIRST_AUDIO_S
    return [
        Gate(f"{streams:g} streams, with a gap or refused", failed, "0", failed == 0),
        Gate(f"{streams:g} streams, first sound p95, ms", first_ms, "< 600", first_ms < bound_ms),
    ]


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, needs_vitals=False)
    parser.add_argument("--requests", type=int, default=12, help="of each closed-loop client")
    parser.add_argument("--closed", type=int, nargs="*", default=[1, 2, 4, 8], help="clients")
    parser.add_argument("--arrivals", type=int, default=60, help="of each open loop")
    parser.add_argument("--streams", type=float, default=4.0, help="of the open loop")
    parser.add_argument("--search", action="store_true", help="find the most streams instead")
    parser.add_argument("--sentences", type=int, default=1, help="of a text")
    return parser.parse_args()


def main() -> int:
    """Measure, print one table and write JSON."""
    args, started = _arguments(), machine()
    with served_or(args.url, max_queue=256) as url:
        rows, gates = asyncio.run(measure(url, args))
    table: list[dict[str, Any]] = [vars(row) for row in rows]
    return conclude(table, gates, args.out, started)


if __name__ == "__main__":
    sys.exit(main())
