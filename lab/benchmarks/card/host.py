"""What a second of speech costs the host of a card, by thread; needs no card.

    python -m lab.benchmarks.card.host --against ../valle-before --out host.json

The service runs over a device that computes nothing (`lab.benchmarks.card.stand_in`). Its processor
time is read by thread before and after a load, so that other programs disturb little: their load
lengthens a run and hardly changes these figures. First sounds are of use on a quiet machine alone.
Two checkouts are measured by turns.
"""

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2

from lab.benchmarks.harness.report import (
    TableRow,
    Target,
    argument_parser,
    conclude,
    machine,
    target,
)
from lab.benchmarks.harness.served import wait_until_ready
from lab.benchmarks.harness.texts import texts

ROOT: Final = Path(__file__).resolve().parents[3]
STAND_IN: Final = Path(__file__).with_name("stand_in.py")
PATH: Final = "/threads"  # of the stand-in, which imports nothing of this checkout
BYTES_A_SECOND: Final = 48_000  # of 16-bit PCM at 24 kHz
LEAST_SOUND_BYTES: Final = 600  # a piece as long is sound, and no head
ANSWERED_WITHIN_S: Final = 60.0
WARM_UPS: Final = 8

THREADS: Final = {"level 0": "speech-ar", "sound": "speech-audio", "loop": "MainThread"}
MOST_CALLS: Final = 1.0
"""Calls of a frame of level 0 that give the interpreter's lock away."""

MOST_GROWTH: Final = 1.1
"""Of what a second of speech costs, against another checkout: more is a regression."""


class HostLoad(NamedTuple):
    """What is asked of a service.

    Attributes:
        name: As it is told.
        streams: How many are spoken at once: in a closed loop, or by a Poisson process on average.
        closed: Whether each listener asks again as soon as it has heard all.
        slowness: How long the device takes, as a share of an H200.
        sentences: Of each text.
    """

    name: str
    streams: int
    closed: bool
    slowness: float = 0.0
    sentences: int = 1


LOADS: Final = (
    HostLoad("closed 32", 32, closed=True),
    HostLoad("closed 32, texts of 11 s", 32, closed=True, sentences=4),
    HostLoad("Poisson 24, as an H200", 24, closed=False, slowness=1.0),
    HostLoad("Poisson 4, as an H200", 4, closed=False, slowness=1.0),
    HostLoad("closed 32, as an H200", 32, closed=True, slowness=1.0),
)


class RawHearing(NamedTuple):
    """What one listener heard, in seconds: audio, until the first sound, and of gaps."""

    audio_s: float
    first_s: float
    gap_s: float


class RawListener(asyncio.Protocol):
    """One connection, which asks for one speech after the other; it costs next to nothing."""

    def __init__(self) -> None:
        self._done: asyncio.Future[None] | None = None
        self._pieces: list[tuple[float, int]] = []
        self._tail = b""
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is being heard."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        """Note when a piece came; the last one ends with an empty chunk."""
        self._pieces.append((time.perf_counter(), len(data)))
        self._tail = (self._tail + data)[-5:]
        if self._tail == b"0\r\n\r\n" and self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def hear(self, text: str, seed: int) -> RawHearing:
        """Ask for a speech and hear it to its end; raises ConnectionError if none came."""
        said = {"input": text, "response_format": "pcm", "stream": True, "seed": seed}
        body = json.dumps(said).encode()
        self._done, self._pieces = asyncio.get_running_loop().create_future(), []
        sent_s = time.perf_counter()
        self.transport.write(
            b"POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        )
        await asyncio.wait_for(self._done, ANSWERED_WITHIN_S)
        sound = [piece for piece in self._pieces if piece[1] > LEAST_SOUND_BYTES]
        if not sound:
            raise ConnectionError("no speech came")
        first_s = plays_until_s = sound[0][0]
        gap_s = 0.0
        for at_s, size in sound:
            gap_s += max(0.0, at_s - plays_until_s)
            plays_until_s = max(plays_until_s, at_s) + size / BYTES_A_SECOND
        audio_s = sum(size for _, size in sound) / BYTES_A_SECOND
        return RawHearing(audio_s, first_s - sent_s, gap_s)


class Listeners:
    """Listeners of one server, each of a connection that is used again."""

    def __init__(self, url: str, sentences: int) -> None:
        self._host, port = url.removeprefix("http://").split(":")
        self._port = int(port)
        self._texts = texts(200, sentences_each=sentences)
        self._idle: list[RawListener] = []
        self.heard: list[RawHearing] = []
        self.failed = 0

    async def hear(self, number: int) -> None:
        """Hear the speech of a number."""
        loop = asyncio.get_running_loop()
        if self._idle:
            one = self._idle.pop()
        else:
            _, one = await loop.create_connection(RawListener, self._host, self._port)
        try:
            self.heard.append(await one.hear(self._texts[number % len(self._texts)], number))
        except (OSError, TimeoutError):
            self.failed += 1
            one.transport.close()
            return
        self._idle.append(one)

    async def closed(self, streams: int, seconds: float) -> None:
        """Have so many listeners ask again and again."""
        ends_s = time.perf_counter() + seconds

        async def again(number: int) -> None:
            while time.perf_counter() < ends_s:
                await self.hear(number)
                number += streams

        await asyncio.gather(*(again(number) for number in range(streams)))

    async def poisson(self, streams: float, seconds: float, text_s: float) -> None:
        """Have listeners come at random, so many at once on average."""
        chance, at_s, began_s = random.Random(0), 0.0, time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(sys.maxsize):
                at_s += chance.expovariate(streams / text_s)
                if at_s > seconds:
                    return
                await asyncio.sleep(max(0.0, began_s + at_s - time.perf_counter()))
                tasks.create_task(self.hear(number))


async def measured(url: str, load: HostLoad, seconds: float) -> dict[str, float]:
    """Return what a load costs the service at a URL, in ms of processor time a second of speech.

    Raises ConnectionError if no speech came.
    """
    listeners = Listeners(url, load.sentences)
    await asyncio.gather(*(listeners.hear(number) for number in range(WARM_UPS)))
    if not listeners.heard:
        raise ConnectionError("no speech came")
    text_s = statistics.fmean(one.audio_s for one in listeners.heard)
    listeners.heard.clear()
    async with httpx2.AsyncClient(base_url=url, trust_env=False) as client:
        before = (await client.get(PATH)).json()
        if load.closed:
            await listeners.closed(load.streams, seconds)
        else:
            await listeners.poisson(load.streams, seconds, text_s)
        after = (await client.get(PATH)).json()
    used = {name: after[name] - before.get(name, 0.0) for name in after}
    audio_s = sum(one.audio_s for one in listeners.heard)
    firsts = sorted(1000 * one.first_s for one in listeners.heard)
    found = {name: 1000 * used[thread] / audio_s for name, thread in THREADS.items()}
    return found | {
        "all": 1000 * used["process"] / audio_s,
        "calls a frame": used["calls"] / used["frames"],
        "rows a frame": used["rows"] / used["frames"],
        "first p50, ms": statistics.median(firsts),
        "first p95, ms": firsts[int(0.95 * (len(firsts) - 1))],
        "gaps": float(sum(one.gap_s > 0.001 for one in listeners.heard)),
        "spoken": float(len(listeners.heard)),
        "failed": float(listeners.failed),
    }


@contextmanager
def served(folder: Path, slowness: float, stride: int = 0) -> Iterator[str]:
    """Serve a checkout over the stand-in; yield its URL once it is ready.

    ``stride`` are the frames of a burst; 0: as the checkout has it. Raises NotServed as
    `wait_until_ready`.
    """
    chosen = {
        "TTS_DEVICE": "cpu", "TTS_WEIGHTS": "float32", "TTS_VOICE_PROCESS": "false",
        "TTS_SLOTS": "256", "TTS_MAX_QUEUE": "512", "TTS_PORT": "0", "TTS_LOG_LEVEL": "warning",
        "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder.resolve()),
        "STAND_IN_SLOWNESS": str(slowness), "STAND_IN_STRIDE": str(stride),
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-P", str(STAND_IN)],
        cwd=folder, env=os.environ | chosen, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        wait_until_ready(url, lambda: process.poll() is None)
        yield url
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def by_turns(
    folders: Sequence[Path], loads: Sequence[HostLoad], rounds: int, seconds: float
) -> dict[tuple[Path, HostLoad], dict[str, float]]:
    """Measure each load in each checkout, the checkouts by turns; return medians of the rounds."""
    found: dict[tuple[Path, HostLoad], list[dict[str, float]]] = {}
    for slowness in dict.fromkeys(load.slowness for load in loads):
        with ExitStack() as stack:
            urls = [stack.enter_context(served(folder, slowness)) for folder in folders]
            for _ in range(rounds):
                for load in (one for one in loads if one.slowness == slowness):
                    for folder, url in zip(folders, urls, strict=True):
                        once = asyncio.run(measured(url, load, seconds))
                        found.setdefault((folder, load), []).append(once)
    return {
        key: {name: statistics.median(one[name] for one in each) for name in each[0]}
        for key, each in found.items()
    }


def judged(own: dict[str, float], before: dict[str, float] | None, name: str) -> list[Target]:
    """Return what a load must hold, before another checkout too if that was measured."""
    targets = [
        target(f"{name}: calls that give the lock away, a frame", own["calls a frame"], "<=",
               MOST_CALLS),
        target(f"{name}: requests that failed", own["failed"], "==", 0),
    ]  # fmt: skip
    if before is not None:
        growth = own["all"] / before["all"]
        targets.append(target(f"{name}: of the other's cost", growth, "<=", MOST_GROWTH))
    return targets


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argument_parser(__doc__)
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=7.0, help="of each load")
    parser.add_argument("--only", help="loads whose names begin with this")
    args, started = parser.parse_args(arguments), machine()
    folders = [ROOT] if args.against is None else [args.against, ROOT]
    loads = [load for load in LOADS if load.name.startswith(args.only or "")]
    found = by_turns(folders, loads, args.rounds, args.seconds)
    rows: list[TableRow] = [
        {"load": load.name, "checkout": str(folder), **figures}
        for (folder, load), figures in found.items()
    ]
    targets: list[Target] = []
    for load in loads:
        before = found.get((args.against, load)) if args.against else None
        targets += judged(found[ROOT, load], before, load.name)
    return conclude(rows, targets, args.out, started)


if __name__ == "__main__":
    raise SystemExit(main())
