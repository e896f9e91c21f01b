"""Soak test: leaks and slowdown of a server under a long mixed load.

    python -m lab.benchmarks.service.soak --minutes 30 --out soak.json

Clients arrive at random: whole and streamed responses in all six formats, server-sent events, the
WebSocket; some disconnect, some send invalid requests. One client in four is a probe: a streamed
sentence whose time to first sound is measured. Memory, file descriptors, threads, tasks and slots
are read every ten seconds.
"""

import argparse
import asyncio
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
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
from lab.benchmarks.service.cancel import leave

FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
READ_EVERY_S = 10.0
EDGE_S = 300.0  # length of the first and last periods that are compared
WARM_S = 60.0  # memory is not measured before, while caches fill
GROWTH_BYTES = 20_000  # a request
WRONG: tuple[dict[str, Any], ...] = (
    {"top_p": 2.0},
    {"voice": "nobody"},
    {"input": ""},
    {"response_format": "midi"},
    {"no_such_field": 1},
)


@dataclass
class SoakLog:
    """Observations of a soak test, at seconds since its start."""

    began_s: float = field(default_factory=perf_counter)  # its start, by `perf_counter`
    # Count of each kind of request and outcome
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Time at which each probe was sent, and its seconds to first sound
    first_s: list[tuple[float, float]] = field(default_factory=list)
    # Time of each reading, number of requests ended by then, and the reading
    vitals: list[tuple[float, int, Vitals]] = field(default_factory=list)

    @property
    def at_s(self) -> float:
        """Seconds since the start."""
        return perf_counter() - self.began_s

    def count(self, kind: str, outcome: str) -> None:
        """Count the outcome of a request."""
        self.outcomes[kind, outcome] += 1

    def firsts(self, from_s: float, to_s: float) -> list[float]:
        """Return the seconds to first sound of probes sent in a period."""
        return [wait_s for at_s, wait_s in self.first_s if from_s <= at_s < to_s]

    def growth_bytes(self) -> float:
        """Return the memory growth a request after the first minute; NaN if too short."""
        late = [(ended, vitals) for at_s, ended, vitals in self.vitals if at_s >= WARM_S]
        if len(late) < 2:
            return math.nan
        ended, memory = zip(*((ended, vitals.rss_bytes) for ended, vitals in late), strict=True)
        return float(np.polyfit(ended, memory, 1)[0])


class ClientMix:
    """Random clients of every kind."""

    def __init__(self, url: str, client: httpx2.AsyncClient, log: SoakLog, seed: int = 0) -> None:
        self._url, self._client, self._log = url, client, log
        self._random, self._inputs = random.Random(seed), texts(64)
        self._kinds: dict[str, Callable[[str], Coroutine[Any, Any, str]]] = {
            "probe": self._probe,
            "whole": self._whole,
            "streamed": self._streamed,
            "events": self._events,
            "WebSocket": self._live,
            "left": self._left,
            "refused": self._refused,
        }
        self._weights = (25, 20, 20, 5, 15, 10, 5)

    async def run(self) -> None:
        """Run one random client."""
        (kind,) = self._random.choices(list(self._kinds), self._weights)
        try:
            outcome = await self._kinds[kind](self._random.choice(self._inputs))
        except (OSError, httpx2.HTTPError) as error:
            outcome = type(error).__name__
        self._log.count(kind, outcome)

    async def _probe(self, text: str) -> str:
        at_s = self._log.at_s
        received = await receive(self._client, text)
        if received.ok and received.first_audio_s is not None:
            self._log.first_s.append((at_s, received.first_audio_s))
        return _outcome(received)

    async def _whole(self, text: str) -> str:
        chosen = self._random.choice(FORMATS)
        return _outcome(await receive(self._client, text, stream=False, response_format=chosen))

    async def _streamed(self, text: str) -> str:
        chosen = self._random.choice(FORMATS)
        return _outcome(await receive(self._client, text, response_format=chosen))

    async def _events(self, text: str) -> str:
        received = await receive(self._client, text, stream_format="sse", response_format="pcm")
        return "good" if b"speech.audio.done" in received.sound else _outcome(received)

    async def _live(self, text: str) -> str:
        return _outcome(await receive_live(self._url, text))

    async def _left(self, text: str) -> str:
        speech: Coroutine[Any, Any, ReceivedSpeech] = self._random.choice((
            lambda: receive(self._client, text),
            lambda: receive(self._client, text, stream=False),
            lambda: receive_live(self._url, text),
        ))()
        await leave(speech, self._random.uniform(0, 1))
        return "good"

    async def _refused(self, text: str) -> str:
        wrong = {"input": text, **self._random.choice(WRONG)}
        answer = await self._client.post("/v1/audio/speech", json=wrong)
        return "good" if answer.status_code in {404, 422} else str(answer.status_code)


def _outcome(received: ReceivedSpeech) -> str:
    if received.ok:
        return "good"
    # A stream that would wait too long is refused as an event, with the error of a 503.
    if received.broke and received.broke.startswith("engine_busy"):
        return "503"
    return received.broke or str(received.status)


async def soak(url: str, minutes: float, rate_hz: float) -> SoakLog:
    """Run clients for some minutes and read the server's vitals; ``rate_hz`` arrive on average."""
    ends_s, generator = 60 * minutes, random.Random(0)
    async with open_client(url) as client, open_client(url) as asking:
        await receive(client, texts(1)[0])
        log = SoakLog()
        mix = ClientMix(url, client, log)
        reading = asyncio.create_task(_read(asking, log))
        async with asyncio.TaskGroup() as group:
            with tqdm(total=round(ends_s), unit="s", disable=None) as bar:
                while log.at_s < ends_s:
                    group.create_task(mix.run())
                    await asyncio.sleep(generator.expovariate(rate_hz))
                    bar.update(round(log.at_s) - bar.n)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return log


async def _read(client: httpx2.AsyncClient, log: SoakLog) -> None:
    while True:
        vitals = await ask_vitals(client, collect=True)
        log.vitals.append((log.at_s, log.outcomes.total(), vitals))
        await asyncio.sleep(READ_EVERY_S)


def rows_of(log: SoakLog) -> list[dict[str, Any]]:
    """Return a table row for each kind of request and outcome."""
    return [
        {"request": kind, "ended": outcome, "times": times}
        for (kind, outcome), times in sorted(log.outcomes.items())
    ]


def targets_of(log: SoakLog, minutes: float, before: Vitals, after: Vitals) -> list[Target]:
    """Return the targets."""
    edge_s = min(EDGE_S, 60 * minutes / 2)
    (early,) = percentiles(log.firsts(0, edge_s), 95)
    (late,) = percentiles(log.firsts(60 * minutes - edge_s, 60 * minutes), 95)
    growth, left = log.growth_bytes(), after.left_since(before)
    # A 503 is the correct response to overload.
    broken = sum(
        times
        for (_, outcome), times in log.outcomes.items()
        if outcome not in {"good", "503", "engine_busy"}
    )
    return [
        target("requests that broke", broken, "==", 0),
        target("memory, bytes a request", growth, "<", GROWTH_BYTES),
        target("slots and jobs left", int(not after.idle), "==", 0),
        target("files left", left["files"], "<=", 0),
        target("tasks left", left["tasks"], "<=", 0),
        target(f"first sound p95, last minutes over first {early:.3f} s", late / early, "<=", 1.2),
    ]


async def measure(url: str, minutes: float, rate_hz: float) -> tuple[SoakLog, Vitals, Vitals]:
    """Return the log, and the server's vitals before and after."""
    # Fills thread pools and caches before the first reading.
    await soak(url, minutes / 20, rate_hz)
    before = await settled_vitals(url)
    log = await soak(url, minutes, rate_hz)
    return log, before, await settled_vitals(url)


def main() -> int:
    """Run the command line."""
    parser = argument_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=1.0, help="clients a second")
    args: argparse.Namespace = parser.parse_args()
    started = machine()
    with served(max_queue=64) as url:
        log, before, after = asyncio.run(measure(url, args.minutes, args.rate))
    series = {
        "vitals": [
            {"at_s": at_s, "ended": ended} | asdict(vitals) for at_s, ended, vitals in log.vitals
        ],
        "first_s": log.first_s,
    }
    targets = targets_of(log, args.minutes, before, after)
    return conclude(rows_of(log), targets, args.out, started, series)


if __name__ == "__main__":
    sys.exit(main())
