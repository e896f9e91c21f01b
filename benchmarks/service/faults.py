"""What clients see when something breaks, and whether the next request works.

    python -m benchmarks.service.faults --out faults.json

The server runs in this process and makes its sound there, so that its parts can be made to break
from outside: the loop of level 0 and the codec raise, give what is no number, run out of memory, or
take their thread with them, each once and in the middle of three speeches. Whoever is not hit must
hear every byte as if nothing had been; whoever is must be told. Then a server as it is by default,
whose voice process is killed; a client that stops reading; and more clients than there is room for.
"""

import argparse
import asyncio
import json
import logging
import multiprocessing
import sys
from collections import Counter
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import httpx

from app.settings import Settings
from benchmarks.harness.injection import FAULTS, Fault, injected
from benchmarks.harness.listener import Heard, hear, listening
from benchmarks.harness.observed import observed_app
from benchmarks.harness.report import Gate, conclude, machine
from benchmarks.harness.served import argument_parser, served_here
from benchmarks.harness.stalled import Stalled
from benchmarks.harness.texts import texts
from benchmarks.harness.vitals import settled_vitals

CLIENTS = 3
CROWD = 64
STALL_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 60.0
MAX_QUEUE = 8
KILL_AFTER_S = 0.5


class Clients:
    """Three who speak at once, and know what they should hear."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._said = texts(CLIENTS)
        self._expected: list[str] = []

    async def learn(self) -> None:
        """Hear what is right, each alone."""
        self._expected = [one.sound_sha256 for one in [await self._one(n) for n in range(CLIENTS)]]

    async def together(self) -> list[str]:
        """Return what each saw when all spoke at once, in words; `whole` is every byte."""
        heard = await asyncio.gather(*(self._one(number) for number in range(CLIENTS)))
        return [self._seen(number, one) for number, one in enumerate(heard)]

    async def next(self) -> str:
        """Return what the next request saw."""
        return self._seen(0, await self._one(0))

    async def _one(self, number: int) -> Heard:
        return await hear(self._client, self._said[number], seed=number)

    def _seen(self, number: int, heard: Heard) -> str:
        if heard.ok:
            return "whole" if heard.sound_sha256 == self._expected[number] else "OTHER BYTES"
        if heard.status != 200:
            return refusal(heard)
        return f"cut off ({heard.broke}) after {heard.audio_s:.2f} s"


def refusal(heard: Heard) -> str:
    """Return a status and the code of the error body."""
    try:
        return f"{heard.status} {json.loads(heard.sound)['error']['code']}"
    except (ValueError, KeyError, TypeError):
        return f"{heard.status} WITH NO ERROR BODY"


async def row_of(fault: Fault, clients: Clients, url: str) -> dict[str, Any]:
    """Break one thing while three speak; tell what they saw."""
    began_s = perf_counter()
    with injected(fault) as happened:
        seen = await clients.together()
    took_s = perf_counter() - began_s
    following = await clients.next()
    idle = (await settled_vitals(url)).idle
    unhit = seen.count("whole") >= CLIENTS - (CLIENTS if fault.hits is None else fault.hits)
    in_time, told = took_s < REQUEST_TIMEOUT_S, "OTHER BYTES" not in seen
    return {
        "fault": fault.name,
        "clients saw": summed(seen) if happened.is_set() else "IT DID NOT HAPPEN",
        "next request": following,
        "seconds": took_s,
        "as asked": all([happened.is_set(), unhit, in_time, told, following == "whole", idle]),
    }


async def killed_row(clients: Clients, url: str) -> dict[str, Any]:
    """Kill the voice process while three speak; tell what they saw."""
    children = multiprocessing.active_children()
    began_s = perf_counter()
    speaking = asyncio.create_task(clients.together())
    await asyncio.sleep(KILL_AFTER_S)
    amid = not speaking.done()
    for child in children:
        child.kill()
    seen = await speaking
    took_s = perf_counter() - began_s
    following = await clients.next()
    idle = (await settled_vitals(url)).idle
    in_time, told = took_s < REQUEST_TIMEOUT_S, "OTHER BYTES" not in seen
    return {
        "fault": "the voice process is killed",
        "clients saw": summed(seen) if amid and children else "IT DID NOT HAPPEN",
        "next request": following,
        "seconds": took_s,
        "as asked": all([amid, children, in_time, told, following == "whole", idle]),
    }


async def stall_row(clients: Clients, url: str) -> dict[str, Any]:
    """Let a client stop reading; tell what others saw meanwhile and what became of it."""
    stalled = await Stalled.begin(url, " ".join(texts(40)))
    began_s = perf_counter()
    meanwhile = await clients.together()
    vitals = await settled_vitals(url, timeout_s=REQUEST_TIMEOUT_S)
    took_s = perf_counter() - began_s
    ended = await stalled.end()
    following = await clients.next()
    good = meanwhile.count("whole") == CLIENTS and following == "whole" and vitals.idle
    return {
        "fault": "a client reads nothing",
        "clients saw": f"it: {ended}; others: {summed(meanwhile)}",
        "next request": following,
        "seconds": took_s,
        "as asked": good and ended == "cut off",
    }


async def crowd_row(clients: Clients, client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    """Let more come than there is room for; tell what they saw."""
    began_s = perf_counter()
    heard = await asyncio.gather(
        *(hear(client, "Hello.", seed=number, max_duration_s=0.3) for number in range(CROWD))
    )
    took_s = perf_counter() - began_s
    refused = [one for one in heard if one.status == 503]
    polite = all(int(one.headers.get("retry-after", 0)) >= 1 for one in refused)
    served = sum(one.ok for one in heard)
    following = await clients.next()
    idle = (await settled_vitals(url)).idle
    seen = ["whole" if one.ok else refusal(one) for one in heard]
    complete = served + len(refused) == CROWD and served and refused
    return {
        "fault": f"{CROWD} clients at once, room for {MAX_QUEUE} to wait",
        "clients saw": summed(seen) + (", all with Retry-After" if polite else ", RUDELY"),
        "next request": following,
        "seconds": took_s,
        "as asked": bool(complete and polite and following == "whole" and idle),
    }


def summed(seen: Sequence[str]) -> str:
    """Return how many saw what."""
    return ", ".join(f"{number} {what}" for what, number in Counter(seen).most_common())


async def measure(url: str, faults: Sequence[Fault]) -> list[dict[str, Any]]:
    """Return a row a fault; one that leaves the server dead spoils those after it, and is seen."""
    async with listening(url) as client:
        clients = Clients(client)
        await clients.learn()
        return [await row_of(fault, clients, url) for fault in faults]


async def measure_outside(url: str) -> list[dict[str, Any]]:
    """Return rows of what comes from without: a signal, a client, a crowd."""
    async with listening(url) as client:
        clients = Clients(client)
        await clients.learn()
        return [
            await killed_row(clients, url),
            await stall_row(clients, url),
            await crowd_row(clients, client, url),
        ]


def settings(*, voice_process: bool) -> Settings:
    """Return those of a server that is to be hit."""
    return Settings(
        max_queue=MAX_QUEUE,
        stall_timeout_s=STALL_TIMEOUT_S,
        request_timeout_s=REQUEST_TIMEOUT_S,
        voice_process=voice_process,
    )


def main() -> int:
    """Break, print one table and write JSON."""
    parser = argument_parser(__doc__, needs_vitals=True)
    args: argparse.Namespace = parser.parse_args()
    started = machine()
    logging.basicConfig(level=logging.FATAL + 1)  # they are meant to break
    with served_here(observed_app(settings(voice_process=False))) as url:
        rows = asyncio.run(measure(url, FAULTS))
    with served_here(observed_app(settings(voice_process=True))) as url:
        rows += asyncio.run(measure_outside(url))
    other = sum(not row["as asked"] for row in rows)
    return conclude(rows, [Gate("faults not borne", other, "0", other == 0)], args.out, started)


if __name__ == "__main__":
    sys.exit(main())
