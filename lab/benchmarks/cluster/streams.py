"""Clients of several replicas of `lab.benchmarks.cluster.card`, who know each byte that must come.

    python -m lab.benchmarks.cluster.streams load --clients 8 --seconds 20
    python -m lab.benchmarks.cluster.streams during --clients 12 --every 15 --command COMMAND
    python -m lab.benchmarks.cluster.streams overhead --times 50 --direct URL --url URL
    python -m lab.benchmarks.cluster.streams slow

`load` is a closed loop of clients, every fourth over a WebSocket. `during` runs a command every few
seconds meanwhile, a rollout or the end of a replica, and tells when a request sent after it had its
first sound and, by `--whole`, when all replicas were there again. An outcome is *whole*, with every
byte; *broken*, which the client sees; *refused*, with a status; or *short*: it looks whole and is
not. `overhead` compares the first sound of services with that of one without a proxy, by turns.
`slow` reads nothing of a long speech and tells how much was generated.
"""

import argparse
import asyncio
import json
import shlex
import socket
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

import httpx2

from app.audio.containers import pcm
from app.commands.bench.listeners import ReceivedSpeech, receive
from lab.benchmarks.cluster.card import FRAME_S, RATE_HZ, codes_of, sound_of
from lab.benchmarks.harness.http_client import open_client
from lab.benchmarks.harness.report import print_table
from lab.benchmarks.harness.websocket_client import receive_live

_LIVE_EVERY = 4
TEXT = "The clocks of the old tower went on as if nobody had ever asked them for the time"


@dataclass
class JobLog:
    """What clients saw."""

    counts: Counter[str] = field(default_factory=Counter)  # by outcome
    # Seconds to the first audio of each whole stream
    first_s: list[float] = field(default_factory=list)
    audio_s: float = 0.0  # seconds of audio of whole streams
    causes: Counter[str] = field(default_factory=Counter)  # what the others said

    def add(self, kind: str, text: str, seed: int, got: ReceivedSpeech) -> None:
        """Count a stream."""
        if got.status != 200:
            outcome = "refused" if got.status else "broken"
            self.causes[f"{kind} {got.status} {got.broke or got.sound[:80].decode()}"] += 1
        elif got.broke is not None:
            outcome = "broken"
            self.causes[f"{kind} {got.broke}"] += 1
        elif got.sound != pcm(sound_of(codes_of(seed, len(text)))):
            outcome = "short"
            self.causes[f"{kind} {len(got.sound)} bytes of {len(text)} frames"] += 1
        else:
            outcome = "whole"
            self.first_s.append(got.arrivals[0][0])
            self.audio_s += got.audio_s
        self.counts[outcome] += 1
        self.counts[kind] += 1

    def row(self, seconds: float) -> dict[str, Any]:
        """Return the figures."""
        first = sorted(self.first_s) or [0.0, 0.0]
        return {
            **{one: self.counts[one] for one in ("whole", "broken", "refused", "short", "live")},
            "audio_s_a_s": round(self.audio_s / seconds, 2),
            "first_p50_ms": round(1000 * median(first), 1),
            "first_p95_ms": round(1000 * quantiles(first, n=20)[-1], 1) if len(first) > 1 else 0,
            "causes": dict(self.causes),
        }


async def run_clients(
    url: str, clients: int, seconds: float, *, text: str = TEXT, live: bool = True
) -> JobLog:
    """Let clients ask one speech after the other for some seconds, and finish what they began."""
    outcomes, ends_s = JobLog(), time.monotonic() + seconds

    async def ask(number: int) -> None:
        seed = number * 1_000_000
        await asyncio.sleep(number / clients)
        async with open_client(url) as client:
            while time.monotonic() < ends_s:
                seed += 1
                if live and number % _LIVE_EVERY == 1:
                    got = await receive_live(url, text, seed=seed)
                    outcomes.add("live", text, seed, got)
                else:
                    outcomes.add("http", text, seed, await receive(client, text, seed=seed))
                if got_nothing(outcomes):
                    await asyncio.sleep(0.2)

    await asyncio.gather(*(ask(number) for number in range(clients)))
    return outcomes


def got_nothing(outcomes: JobLog) -> bool:
    """Return whether streams are refused: clients wait then, as they should."""
    return outcomes.counts["refused"] > 0


async def run_command(command: Sequence[str]) -> tuple[int, float]:
    """Run a command; return its status and how long it took."""
    began_s = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait(), time.monotonic() - began_s


async def new_work(url: str, since_s: float) -> tuple[float, list[int]]:
    """Ask for speech until there is some.

    Returns the seconds from ``since_s``, of `time.monotonic`, to the first sound of a request
    that was sent after it, and the statuses of what failed before.
    """
    failed: list[int] = []
    async with open_client(url) as client:
        while True:
            sent_s = time.monotonic()
            got = await receive(client, "Hello.", seed=1)
            if got.ok:
                return sent_s - since_s + got.arrivals[0][0], failed
            failed.append(got.status)
            await asyncio.sleep(0.05)


async def whole_again(command: Sequence[str], since_s: float) -> float:
    """Return the seconds until a command that told that replicas are missing tells that none is."""
    for missing in (True, False):
        while ((await run_command(command))[0] != 0) != missing:
            await asyncio.sleep(0.1)
    return time.monotonic() - since_s


async def during(
    url: str, clients: int, every_s: float, times: int, command: list[str], whole: list[str]
) -> None:
    """Run a command several times while clients speak; tell when there was new work after each.

    ``whole`` is a command that succeeds while all replicas are ready; if empty it is not asked.
    """
    seconds = every_s * (times + 1)
    began_s = time.monotonic()
    speaking = asyncio.create_task(run_clients(url, clients, seconds))
    for number in range(times):
        await asyncio.sleep(max(0.0, began_s + every_s * (number + 1) - time.monotonic()))
        since_s = time.monotonic()
        watching = asyncio.create_task(whole_again(whole, since_s)) if whole else None
        status, took_s = await run_command([one.replace("{n}", str(number)) for one in command])
        new_s, failed = await new_work(url, since_s)
        row: dict[str, Any] = {"command": number, "status": status, "took_s": round(took_s, 2)}
        row |= {"new_work_s": round(new_s, 2), "failed": failed}
        if watching is not None:
            row["whole_s"] = round(await watching, 2)
        print(json.dumps(row), flush=True)
    outcomes = await speaking
    print(json.dumps(outcomes.row(time.monotonic() - began_s)))


async def overhead(urls: Sequence[str], times: int) -> list[dict[str, Any]]:
    """Ask each service in turn, one request at a time; compare their first sounds with the first's.

    The first is without a proxy. Raises RuntimeError if a request fails.
    """
    first_ms: dict[str, list[float]] = {url: [] for url in urls}
    async with AsyncExitStack() as opened:
        clients = [await opened.enter_async_context(open_client(url)) for url in urls]
        for number in range(times + 1):
            for url, client in zip(urls, clients, strict=True):
                got = await receive(client, "Hello.", seed=number)
                if not got.ok:
                    raise RuntimeError(f"{url}: {got.status} {got.broke}")
                if number:  # the first opens the connection
                    first_ms[url].append(1000 * got.arrivals[0][0])
    rows = []
    for url in urls:
        later = sorted(a - b for a, b in zip(first_ms[url], first_ms[urls[0]], strict=True))
        row: dict[str, Any] = {"url": url, "first_p50_ms": round(median(first_ms[url]), 1)}
        row["first_p95_ms"] = round(quantiles(first_ms[url], n=20)[-1], 1)
        row["overhead_p50_ms"] = round(median(later), 1)
        rows.append(row)
    return rows


def slow(url: str, seconds: float) -> None:
    """Read nothing of a long speech; print how much of it was generated, and how it ended."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    body = json.dumps({"input": TEXT * 45, "response_format": "pcm", "stream": True, "seed": 1})
    head = (
        f"POST /v1/audio/speech HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.socket() as reader, httpx2.Client(base_url=url, trust_env=False) as asking:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        reader.connect((parts.hostname, parts.port or 80))
        reader.sendall((head + body).encode())
        began_s = time.monotonic()
        while time.monotonic() - began_s < seconds:
            # Each answer is of one replica; the greatest of several is of the one that speaks.
            used = max(asking.get("/health").json()["used_slots"] for _ in range(8))
            print(f"{time.monotonic() - began_s:6.1f} s: {used} slots in use", flush=True)
            time.sleep(seconds / 12)
        reader.settimeout(5)
        received = bytearray()
        try:
            while part := reader.recv(65_536):
                received += part
            ended = "closed"
        except OSError as error:
            ended = type(error).__name__
        head_end = received.index(b"\r\n\r\n")
        speech_id = bytes(received[:head_end]).split(b"x-request-id: ")[1].split(b"\r\n")[0]
        report = asking.get(f"/v1/audio/speech/{speech_id.decode()}").json()
    row = {
        "bytes_read": len(received),
        "bytes_of_speech": 2 * round(FRAME_S * RATE_HZ) * 45 * len(TEXT),
        "bytes_generated": 2 * round(FRAME_S * RATE_HZ) * report["frames"],
        "looks_whole": bytes(received).endswith(b"0\r\n\r\n"),
        "connection": ended,
        "finish_reason": report["finish_reason"],
        "error": report["error"] and report["error"]["code"],
    }
    print(json.dumps(row))


def main() -> None:
    """Run a command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["load", "during", "overhead", "slow"])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--direct", default="http://127.0.0.1:8200", help="for `overhead`")
    parser.add_argument("--other", action="append", default=[], help="for `overhead`: further URLs")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--every", type=float, default=15)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--no-live", action="store_true", help="HTTP only")
    parser.add_argument("--command", default="", help="for `during`; {n} is its number")
    parser.add_argument("--whole", default="", help="a command that succeeds with all replicas")
    asked = parser.parse_args()
    match asked.what:
        case "load":
            began_s = time.monotonic()
            speaking = run_clients(asked.url, asked.clients, asked.seconds, live=not asked.no_live)
            outcomes = asyncio.run(speaking)
            print(json.dumps(outcomes.row(time.monotonic() - began_s)))
        case "during":
            command, whole = shlex.split(asked.command), shlex.split(asked.whole)
            asyncio.run(during(asked.url, asked.clients, asked.every, asked.times, command, whole))
        case "overhead":
            urls = [asked.direct, asked.url, *asked.other]
            print_table(asyncio.run(overhead(urls, asked.times)))
        case _:
            slow(asked.url, asked.seconds)


if __name__ == "__main__":
    main()
