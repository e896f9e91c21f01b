"""The service on a device: requests of all knobs, first sound, the most streams without a gap.

A server with the built-in voice and HTTP clients on the same machine.
"""

import asyncio
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import httpx2
import torch

from app.commands.bench.listeners import receive
from lab.benchmarks.card.environment import missing
from lab.benchmarks.harness.http_client import open_client
from lab.benchmarks.harness.report import TableRow, Target, target
from lab.benchmarks.harness.served import served
from lab.benchmarks.harness.texts import texts
from lab.benchmarks.service.load import open_loop
from lab.benchmarks.service.unchanged import Request, requests

FIRST_MS = 25.0
STREAMS = 100.0


async def spoken(url: str, wanted: Sequence[Request], at_once: int) -> TableRow:
    """Speak requests, so many at once; where others are spoken every fourth client leaves early."""
    gate, found = asyncio.Semaphore(at_once), Counter[str]()

    async def speak(client: httpx2.AsyncClient, number: int, wanted: Request) -> None:
        async with gate:
            hearing = receive(client, wanted.text, **wanted.fields)
            try:
                leaves_s = 0.1 if at_once > 1 and number % 4 == 3 else None
                heard = await asyncio.wait_for(hearing, leaves_s)
            except TimeoutError:
                found["left"] += 1
                return
        kind = "spoken" if heard.ok else "refused" if heard.status == 422 else "failed"
        found[kind] += 1
        if kind == "failed":
            print(wanted, heard.error, flush=True)

    async with open_client(url) as client:
        await asyncio.gather(*(speak(client, *one) for one in enumerate(wanted)))
    kinds = ("spoken", "refused", "left", "failed")
    return {"at once": at_once, "requests": len(wanted), **{kind: found[kind] for kind in kinds}}


def mixed_requests(device: torch.device, *, tiny: bool) -> tuple[list[TableRow], list[Target]]:
    """Return what came of requests of all kinds of knobs, alone and among others: none may fail."""
    wanted = requests(2 if tiny else 100)
    if missing(["av"]):
        needs_av = {"speed", "loudness_lufs"}
        wanted = [one for one in wanted if needs_av.isdisjoint(one.fields)]
    with served(device=device.type, max_queue=256) as url:
        rows = [asyncio.run(spoken(url, wanted, at_once)) for at_once in (1, 24)]
    failed = float(sum(int(row["failed"]) for row in rows))
    return rows, [target("requests that failed", failed, "==", 0)]


async def first_sounds_ms(url: str, said: list[str]) -> list[float]:
    """Return the milliseconds to first sound of sequential requests, without the first one.

    Raises:
        RuntimeError: A request returned no speech.
    """
    found = []
    async with open_client(url) as client:
        for text in said:
            heard = await receive(client, text, seed=1)
            if not heard.ok or heard.first_audio_s is None:
                raise RuntimeError(f"no speech came: {heard.status} {heard.broke or ''}")
            found.append(heard.first_audio_s * 1000)
    return found[1:]


def first_sound(device: torch.device, *, tiny: bool) -> tuple[list[TableRow], list[Target]]:
    """Return the median time to first sound of 20 different sentences, and its target."""
    said = ["Hi."] * 2 if tiny else texts(21)
    with served(device=device.type) as url:
        found = asyncio.run(first_sounds_ms(url, said))
    median = statistics.median(found)
    row = {
        "what": "first sound, ms",
        "median": median,
        "least": min(found),
        "most": max(found),
        "requests": len(found),
    }
    return [row], [target("ms to the first sound", median, "<=", FIRST_MS)]


async def most_streams(
    url: str, said: Sequence[str], *, first: float, most: float
) -> tuple[float, list[TableRow]]:
    """Return the most streams of a Poisson process without a gap, and every load tried.

    The load is doubled until somebody hears a gap, is refused or waits too long for the first
    sound, and then halved between the last two, to within a tenth.

    Args:
        url: Of the server.
        said: Texts, 8 or more and three times ``most``; each load has the first of them.
        first: Streams at once to begin with.
        most: Streams at once beyond which nothing is tried.
    """
    rows: list[TableRow] = []
    best, too_many = 0.0, math.inf
    async with open_client(url) as client:
        alone = [await receive(client, text, seed=seed) for seed, text in enumerate(said[:4])]
        text_s = statistics.fmean(one.audio_s for one in alone)
        streams = first
        while streams <= most and too_many - best > 0.1 * best:
            count = max(8, round(3 * streams))
            found = await open_loop(client, streams, said[:count], text_s)
            rows.append(asdict(found))
            best, too_many = (streams, too_many) if found.smooth else (best, streams)
            streams = 2 * best if math.isinf(too_many) else (best + too_many) / 2
            if not best and too_many <= first:
                break
    return best, rows


def streams_without_a_gap(
    device: torch.device, *, tiny: bool
) -> tuple[list[TableRow], list[Target]]:
    """Return every load tried, and the most streams without a gap."""
    first, most = (1.0, 1.0) if tiny else (16.0, 512.0)
    said = ["Hi."] * 8 if tiny else texts(round(3 * most))
    with served(device=device.type, max_queue=512, slots=20 if tiny else 256) as url:
        best, rows = asyncio.run(most_streams(url, said, first=first, most=most))
    return rows, [target("real-time streams", best, ">=", STREAMS)]
