"""Fault benchmark: what clients receive when something breaks, and whether the server recovers.

    python -m lab.benchmarks.service.faults --out faults.json

The server and its audio stage run in this process, so that faults can be injected: the loop of
level 0 and the codec raise, return NaN, run out of memory or end their thread, each once during
three requests. Requests that are not affected must receive every byte; the others must get an
error. Then a server with default settings: its voice process is killed, a client stops reading, and
more clients connect than are accepted.
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

import httpx2

from app.commands.bench.listeners import ReceivedSpeech, receive
from app.settings import Settings
from lab.benchmarks.harness.http_client import open_client
from lab.benchmarks.harness.injection import FAULTS, Fault, injected
from lab.benchmarks.harness.instrumented import observed_app
from lab.benchmarks.harness.report import argument_parser, conclude, machine, target
from lab.benchmarks.harness.served import served_here
from lab.benchmarks.harness.stalled_client import StalledClient
from lab.benchmarks.harness.texts import texts
from lab.benchmarks.harness.vitals import settled_vitals

CLIENTS = 3
CROWD = 64
STALL_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 60.0
MAX_QUEUE = 8
KILL_AFTER_S = 0.5


class FaultClients:
    """Three concurrent clients that know the correct response to their requests."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._inputs = texts(CLIENTS)
        self._expected: list[str] = []

    async def learn(self) -> None:
        """Record the correct responses, requested sequentially."""
        self._expected = [one.sound_sha256 for one in [await self._one(n) for n in range(CLIENTS)]]

    async def together(self) -> list[str]:
        """Send all requests at once; describe each response: `whole` if every byte is correct."""
        received = await asyncio.gather(*(self._one(number) for number in range(CLIENTS)))
        return [self._seen(number, one) for number, one in enumerate(received)]

    async def next(self) -> str:
        """Describe the response to one more request."""
        return self._seen(0, await self._one(0))

    async def _one(self, number: int) -> ReceivedSpeech:
        return await receive(self._client, self._inputs[number], seed=number)

    def _seen(self, number: int, received: ReceivedSpeech) -> str:
        if received.ok:
            return "whole" if received.sound_sha256 == self._expected[number] else "OTHER BYTES"
        if received.status != 200:
            return refusal(received)
        return f"cut off ({received.broke}) after {received.audio_s:.2f} s"


def refusal(received: ReceivedSpeech) -> str:
    """Return status and error code of an error response."""
    try:
        return f"{received.status} {json.loads(received.sound)['error']['code']}"
    except (ValueError, KeyError, TypeError):
        return f"{received.status} WITH NO ERROR BODY"


async def row_of(fault: Fault, clients: FaultClients, url: str) -> dict[str, Any]:
    """Inject a fault during three requests; return a table row."""
    began_s = perf_counter()
    with injected(fault) as happened:
        seen = await clients.together()
    took_s = perf_counter() - began_s
    following = await clients.next()
    idle = (await settled_vitals(url)).idle
    unhit = seen.count("whole") >= CLIENTS - (CLIENTS if fault.hits is None else fault.hits)
    in_time, correct = took_s < REQUEST_TIMEOUT_S, "OTHER BYTES" not in seen
    return {
        "fault": fault.name,
        "clients saw": summed(seen) if happened.is_set() else "IT DID NOT HAPPEN",
        "next request": following,
        "seconds": took_s,
        "as asked": all([happened.is_set(), unhit, in_time, correct, following == "whole", idle]),
    }


async def killed_row(clients: FaultClients, url: str) -> dict[str, Any]:
    """Kill the voice process during three requests; return a table row."""
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
    in_time, correct = took_s < REQUEST_TIMEOUT_S, "OTHER BYTES" not in seen
    return {
        "fault": "the voice process is killed",
        "clients saw": summed(seen) if amid and children else "IT DID NOT HAPPEN",
        "next request": following,
        "seconds": took_s,
        "as asked": all([amid, children, in_time, correct, following == "whole", idle]),
    }


async def stall_row(clients: FaultClients, url: str) -> dict[str, Any]:
    """Stop reading on one client while others send requests; return a table row."""
    stalled = await StalledClient.begin(url, " ".join(texts(40)))
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


async def crowd_row(clients: FaultClients, client: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    """Send more requests than the queue accepts; return a table row."""
    began_s = perf_counter()
    received = await asyncio.gather(
        *(receive(client, "Hello.", seed=number, max_duration_s=0.3) for number in range(CROWD))
    )
    took_s = perf_counter() - began_s
    refused = [one for one in received if one.status == 503]
    polite = all(int(one.headers.get("retry-after", 0)) >= 1 for one in refused)
    served = sum(one.ok for one in received)
    following = await clients.next()
    idle = (await settled_vitals(url)).idle
    seen = ["whole" if one.ok else refusal(one) for one in received]
    complete = served + len(refused) == CROWD and served and refused
    return {
        "fault": f"{CROWD} clients at once, room for {MAX_QUEUE} to wait",
        "clients saw": summed(seen) + (", all with Retry-After" if polite else ", RUDELY"),
        "next request": following,
        "seconds": took_s,
        "as asked": bool(complete and polite and following == "whole" and idle),
    }


def summed(seen: Sequence[str]) -> str:
    """Return the counts of equal descriptions."""
    return ", ".join(f"{number} {what}" for what, number in Counter(seen).most_common())


async def measure(url: str, faults: Sequence[Fault]) -> list[dict[str, Any]]:
    """Return a row for each injected fault; a fault that kills the server fails later rows too."""
    async with open_client(url) as client:
        clients = FaultClients(client)
        await clients.learn()
        return [await row_of(fault, clients, url) for fault in faults]


async def measure_outside(url: str) -> list[dict[str, Any]]:
    """Return the rows of faults from outside: a signal, a stalled client, overload."""
    async with open_client(url) as client:
        clients = FaultClients(client)
        await clients.learn()
        return [
            await killed_row(clients, url),
            await stall_row(clients, url),
            await crowd_row(clients, client, url),
        ]


def settings(*, voice_process: bool) -> Settings:
    """Return the settings of the measured server."""
    return Settings(
        max_queue=MAX_QUEUE,
        stall_timeout_s=STALL_TIMEOUT_S,
        request_timeout_s=REQUEST_TIMEOUT_S,
        voice_process=voice_process,
    )


def main() -> int:
    """Run the command line."""
    parser = argument_parser(__doc__)
    args: argparse.Namespace = parser.parse_args()
    started = machine()
    logging.basicConfig(level=logging.FATAL + 1)  # the faults are intended
    with served_here(observed_app(settings(voice_process=False))) as url:
        rows = asyncio.run(measure(url, FAULTS))
    with served_here(observed_app(settings(voice_process=True))) as url:
        rows += asyncio.run(measure_outside(url))
    other = sum(not row["as asked"] for row in rows)
    return conclude(rows, [target("faults not borne", other, "==", 0)], args.out, started)


if __name__ == "__main__":
    sys.exit(main())
