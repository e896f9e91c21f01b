"""Load benchmark: throughput, time to first sound and playback gaps of a server.

    python -m benchmarks.service.load --out load.json
    python -m benchmarks.service.load --search --sentences 3 --out load.json

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
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter
from typing import Any

import httpx2
import numpy as np

from benchmarks.harness.http_client import open_client
from benchmarks.harness.report import Target, conclude, machine
from benchmarks.harness.served import argument_parser, served_or
from benchmarks.harness.texts import texts
from tools.listeners import BYTES_A_SAMPLE, GAP_S, ReceivedSpeech, gaps, receive

FIRST_AUDIO_S = 0.6  # target of the p95
WARM_UP = 4


@dataclass(frozen=True)
class Figures:
    """Figures of one load."""

    load: str
    requests: int
    failed: int  # Requests refused or cut off
    audio_a_second: float  # Seconds of audio received a second
    first_p50_ms: float  # Median time to first sound of requests without a gap
    first_p95_ms: float  # 95th percentile of it
    first_p99_ms: float  # 99th percentile of it
    gaps: int  # Requests with a gap in playback
    underrun_s: float  # Total length of the gaps
    rtf_p50: float  # Median of seconds to the last byte over seconds of audio
    rtf_p95: float  # 95th percentile of it
    late: list[dict[str, Any]]  # The `timeline` of each request with a gap

    @property
    def smooth(self) -> bool:
        """Whether no request failed or had a gap, and first sounds met their target."""
        return not (self.failed or self.gaps) and self.first_p95_ms < 1000 * FIRST_AUDIO_S


def figures(load: str, received: Sequence[ReceivedSpeech], audio_a_second: float) -> Figures:
    """Summarise the responses of a load."""
    good = [one for one in received if one.ok]
    began_s = min((one.sent_s for one in received), default=0.0)
    underruns_s = [one.underrun_s for one in good]
    firsts = [one.first_audio_s for one in good if one.underrun_s <= GAP_S]
    first_ms = [1000 * first for first in firsts if first is not None]
    p50, p95, p99 = percentiles(first_ms, 50, 95, 99)
    factors = percentiles([one.wall_s / one.audio_s for one in good if one.sound], 50, 95)
    return Figures(
        load=load,
        requests=len(received),
        failed=len(received) - len(good),
        audio_a_second=audio_a_second,
        first_p50_ms=p50,
        first_p95_ms=p95,
        first_p99_ms=p99,
        gaps=sum(gap_s > GAP_S for gap_s in underruns_s),
        underrun_s=sum(underruns_s),
        rtf_p50=factors[0],
        rtf_p95=factors[1],
        late=[timeline(one, began_s) for one in good if one.underrun_s > GAP_S],
    )


def timeline(one: ReceivedSpeech, began_s: float) -> dict[str, Any]:
    """Return when a speech was sent, when its first byte came, and its `gaps`; in seconds.

    ``began_s`` is when the load began, by the clock of ``one.sent_s``.
    """
    return {
        "sent_s": one.sent_s - began_s,
        "first_s": one.arrivals[0][0],
        "gaps": gaps(one.arrivals, BYTES_A_SAMPLE * one.rate_hz),
    }


def percentiles(values: Sequence[float], *percents: float) -> list[float]:
    """Return percentiles of values; NaN if there are none."""
    return [float(np.percentile(values, one)) if values else float("nan") for one in percents]


async def closed_loop(client: httpx2.AsyncClient, clients: int, inputs: Sequence[str]) -> Figures:
    """Run a number of clients, each sending sequential requests, until all texts are spoken."""
    left, received = iter(enumerate(inputs)), list[ReceivedSpeech]()
    over_s: list[float] = []  # when each client ran out of texts

    async def listen() -> None:
        for seed, text in left:
            received.append(await receive(client, text, seed=seed))
        over_s.append(perf_counter())

    began_s = perf_counter()
    await asyncio.gather(*(listen() for _ in range(clients)))
    ended_s = min(over_s)  # afterwards not all clients were busy
    return figures(
        f"{clients} at once", received, _audio_until(received, ended_s) / (ended_s - began_s)
    )


async def open_loop(
    client: httpx2.AsyncClient, streams: float, inputs: Sequence[str], text_s: float, seed: int = 0
) -> Figures:
    """Send requests as a Poisson process, so that ``streams`` listeners play at once on average.

    ``text_s`` is the average length of a text's audio in seconds.
    """
    began_s = perf_counter()
    received = await arriving(client, inputs, streams / text_s, seed)
    ended_s = max(one.sent_s + one.wall_s for one in received)
    name = f"Poisson, {streams:g} streams"
    return figures(name, received, _audio_until(received, ended_s) / (ended_s - began_s))


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


def _audio_until(received: Sequence[ReceivedSpeech], ends_s: float) -> float:
    """Return the seconds of audio received until a time."""
    return sum(
        count / 2 / one.rate_hz
        for one in received
        for at_s, count in one.arrivals
        if one.ok and one.sent_s + at_s <= ends_s
    )


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
                targets.append(Target("8 at once, audio s a second", speed, ">= 6", speed >= 6))
        inputs = texts(args.arrivals, sentences_each=args.sentences)
        if args.search:
            best, tried = await search(client, inputs, text_s)
            rows += tried
            targets.append(Target("most streams without a gap", best, ">= 4", best >= 4))
        else:
            rows.append(await open_loop(client, args.streams, inputs, text_s))
            targets += targets_of_many(rows[-1], args.streams)
    return rows, targets


def targets_of_one(row: Figures) -> list[Target]:
    """Return the targets of a single stream."""
    speed, first_ms = row.audio_a_second, row.first_p50_ms
    return [
        Target("one stream, times real time", speed, ">= 2.5", speed >= 2.5),
        Target("one stream, first sound p50, ms", first_ms, "< 200", first_ms < 200),
    ]


def targets_of_many(row: Figures, streams: float) -> list[Target]:
    """Return the targets of many streams."""
    failed, first_ms = row.gaps + row.failed, row.first_p95_ms
    bound_ms = 1000 * FIRST_AUDIO_S
    return [
        Target(f"{streams:g} streams, with a gap or refused", failed, "0", failed == 0),
        Target(f"{streams:g} streams, first sound p95, ms", first_ms, "< 600", first_ms < bound_ms),
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
    """Run the command line."""
    args, started = _arguments(), machine()
    with served_or(args.url, max_queue=256) as url:
        rows, targets = asyncio.run(measure(url, args))
    table: list[dict[str, Any]] = [vars(row) for row in rows]
    return conclude(table, targets, args.out, started)


if __name__ == "__main__":
    sys.exit(main())
