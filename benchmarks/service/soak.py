"""What a server becomes in a long time of everything at once.

    python -m benchmarks.service.soak --minutes 30 --out soak.json

Clients come at random: speeches whole and streamed in all six formats, as events, over the
WebSocket; some leave in the middle, some send what is refused. One listener in four is the probe: a
streamed sentence whose first sound is timed. Memory, handles, threads, tasks and slots are read
every ten seconds.
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

import httpx
import numpy as np
from tqdm import tqdm

from benchmarks.harness.listener import Heard, hear, listening
from benchmarks.harness.live_listener import hear_live
from benchmarks.harness.report import Gate, conclude, machine
from benchmarks.harness.served import argument_parser, served
from benchmarks.harness.texts import texts
from benchmarks.harness.vitals import Vitals, ask_vitals, settled_vitals
from benchmarks.service.cancel import leave
from benchmarks.service.load import percentiles

FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
READ_EVERY_S = 10.0
EDGE_S = 300.0  # of the first and last minutes that are compared
WARM_S = 60.0  # whose memory is not counted: caches fill
GROWTH_BYTES = 20_000  # a request
WRONG: tuple[dict[str, Any], ...] = (
    {"top_p": 2.0},
    {"voice": "nobody"},
    {"input": ""},
    {"response_format": "ogg"},
    {"no_such_field": 1},
)


@dataclass
class Diary:
    """What was seen while it went on, at seconds since its begin.

    Attributes:
        outcomes: How often each kind of request ended how.
        first_s: When each probe was sent, and its seconds to the first sound.
        vitals: When they were read, how many requests had ended, and what they were.
    """

    began_s: float = field(default_factory=perf_counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    first_s: list[tuple[float, float]] = field(default_factory=list)
    vitals: list[tuple[float, int, Vitals]] = field(default_factory=list)

    @property
    def at_s(self) -> float:
        """Seconds since the begin."""
        return perf_counter() - self.began_s

    def count(self, kind: str, outcome: str) -> None:
        """Note how a request ended."""
        self.outcomes[kind, outcome] += 1

    def firsts(self, from_s: float, to_s: float) -> list[float]:
        """Return the waits of the probes sent in a time."""
        return [wait_s for at_s, wait_s in self.first_s if from_s <= at_s < to_s]

    def growth_bytes(self) -> float:
        """Return by how much memory grew a request after the first minute; NaN if too short."""
        late = [(ended, vitals) for at_s, ended, vitals in self.vitals if at_s >= WARM_S]
        if len(late) < 2:
            return math.nan
        ended, memory = zip(*((ended, vitals.rss_bytes) for ended, vitals in late), strict=True)
        return float(np.polyfit(ended, memory, 1)[0])


class Mix:
    """Clients of every kind."""

    def __init__(self, url: str, client: httpx.AsyncClient, diary: Diary, seed: int = 0) -> None:
        self._url, self._client, self._diary = url, client, diary
        self._random, self._said = random.Random(seed), texts(64)
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

    async def come(self) -> None:
        """Be one of them."""
        (kind,) = self._random.choices(list(self._kinds), self._weights)
        try:
            outcome = await self._kinds[kind](self._random.choice(self._said))
        except (OSError, httpx.HTTPError) as error:
            outcome = type(error).__name__
        self._diary.count(kind, outcome)

    async def _probe(self, text: str) -> str:
        at_s = self._diary.at_s
        heard = await hear(self._client, text)
        if heard.ok and heard.first_audio_s is not None:
            self._diary.first_s.append((at_s, heard.first_audio_s))
        return _outcome(heard)

    async def _whole(self, text: str) -> str:
        chosen = self._random.choice(FORMATS)
        return _outcome(await hear(self._client, text, stream=False, response_format=chosen))

    async def _streamed(self, text: str) -> str:
        chosen = self._random.choice(FORMATS)
        return _outcome(await hear(self._client, text, response_format=chosen))

    async def _events(self, text: str) -> str:
        heard = await hear(self._client, text, stream_format="sse", response_format="pcm")
        return "good" if b"speech.audio.done" in heard.sound else _outcome(heard)

    async def _live(self, text: str) -> str:
        return _outcome(await hear_live(self._url, text))

    async def _left(self, text: str) -> str:
        speech: Coroutine[Any, Any, Heard] = self._random.choice((
            lambda: hear(self._client, text),
            lambda: hear(self._client, text, stream=False),
            lambda: hear_live(self._url, text),
        ))()
        await leave(speech, self._random.uniform(0, 1))
        return "good"

    async def _refused(self, text: str) -> str:
        wrong = {"input": text, **self._random.choice(WRONG)}
        answer = await self._client.post("/v1/audio/speech", json=wrong)
        return "good" if answer.status_code in {404, 422} else str(answer.status_code)


def _outcome(heard: Heard) -> str:
    if heard.ok:
        return "good"
    return heard.broke or str(heard.status)


async def soak(url: str, minutes: float, rate_hz: float) -> Diary:
    """Let clients come for some minutes, and read the server's vitals.

    Args:
        url: Of the server.
        minutes: For how long they come.
        rate_hz: How many come a second, on average.
    """
    ends_s, generator = 60 * minutes, random.Random(0)
    async with listening(url) as client, listening(url) as asking:
        await hear(client, texts(1)[0])
        diary = Diary()
        mix = Mix(url, client, diary)
        reading = asyncio.create_task(_read(asking, diary))
        async with asyncio.TaskGroup() as group:
            with tqdm(total=round(ends_s), unit="s", disable=None) as bar:
                while diary.at_s < ends_s:
                    group.create_task(mix.come())
                    await asyncio.sleep(generator.expovariate(rate_hz))
                    bar.update(round(diary.at_s) - bar.n)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return diary


async def _read(client: httpx.AsyncClient, diary: Diary) -> None:
    while True:
        vitals = await ask_vitals(client, collect=True)
        diary.vitals.append((diary.at_s, diary.outcomes.total(), vitals))
        await asyncio.sleep(READ_EVERY_S)


def rows_of(diary: Diary) -> list[dict[str, Any]]:
    """Return a row a kind of request and outcome."""
    return [
        {"request": kind, "ended": outcome, "times": times}
        for (kind, outcome), times in sorted(diary.outcomes.items())
    ]


def gates_of(diary: Diary, minutes: float, before: Vitals, after: Vitals) -> list[Gate]:
    """Return what is asked of a server that lived through it."""
    edge_s = min(EDGE_S, 60 * minutes / 2)
    (early,) = percentiles(diary.firsts(0, edge_s), 95)
    (late,) = percentiles(diary.firsts(60 * minutes - edge_s, 60 * minutes), 95)
    growth, left = diary.growth_bytes(), after.left_since(before)
    # A 503 is an answer to a crowd, not a fault.
    broken = sum(
        times
        for (_, outcome), times in diary.outcomes.items()
        if outcome not in {"good", "503", "engine_busy"}
    )
    return [
        Gate("requests that broke", broken, "0", broken == 0),
        Gate("memory, bytes a request", growth, "< 20000", growth < GROWTH_BYTES),
        Gate("slots and jobs left", int(not after.idle), "0", after.idle),
        Gate("files left", left["files"], "<= 0", left["files"] <= 0),
        Gate("tasks left", left["tasks"], "<= 0", left["tasks"] <= 0),
        Gate(
            f"first sound p95, last {edge_s / 60:g} minutes over first {early:.3f} s",
            late / early,
            "<= 1.2",
            late <= 1.2 * early,
        ),
    ]


async def measure(url: str, minutes: float, rate_hz: float) -> tuple[Diary, Vitals, Vitals]:
    """Return the diary, and the server's vitals before and after."""
    # Its pools of threads and its caches are there before the first reading.
    await soak(url, minutes / 20, rate_hz)
    before = await settled_vitals(url)
    diary = await soak(url, minutes, rate_hz)
    return diary, before, await settled_vitals(url)


def main() -> int:
    """Soak, print one table and write JSON."""
    parser = argument_parser(__doc__, needs_vitals=True)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=1.0, help="clients a second")
    args: argparse.Namespace = parser.parse_args()
    started = machine()
    with served(max_queue=64) as url:
        diary, before, after = asyncio.run(measure(url, args.minutes, args.rate))
    series = {
        "vitals": [
            {"at_s": at_s, "ended": ended} | asdict(vitals) for at_s, ended, vitals in diary.vitals
        ],
        "first_s": diary.first_s,
    }
    gates = gates_of(diary, args.minutes, before, after)
    return conclude(rows_of(diary), gates, args.out, started, series)


if __name__ == "__main__":
    sys.exit(main())
