"""What clients see when something breaks, and whether the next request works.

    python -m benchmarks.faults --out faults.json

The server runs in this process, so that its parts can be made to break from outside: the loop of
level 0 and the codec raise, give what is no number, run out of memory, or take their thread with
them, each once and in the middle of three speeches. Whoever is not hit must hear every byte as if
nothing had been; whoever is must be told. Then a client that stops reading, and more clients than
there is room for.
"""

import argparse
import asyncio
import json
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import Any

import httpx
import torch

from app.settings import Settings
from benchmarks.listener import Heard, hear, listening
from benchmarks.observed import observed_app
from benchmarks.report import Gate, conclude, machine
from benchmarks.served import argument_parser, served_here
from benchmarks.stalled import Stalled
from benchmarks.texts import texts
from benchmarks.vitals import settled_vitals
from models.codec import DecoderStream
from models.valle import Valle

CLIENTS = 3
CROWD = 64
STALL_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 60.0
MAX_QUEUE = 8
Call = Callable[..., Any]


class WorkerKilled(BaseException):
    """Nothing that catches an `Exception` catches this: the thread ends."""


@dataclass(frozen=True)
class Fault:
    """One thing that breaks, once.

    Attributes:
        name: In words.
        owner: The class whose method breaks.
        method: Its name.
        happens: Takes the call's place: the method as it was, and its arguments.
        level: Of the method's last argument, where only one level breaks.
        after_calls: How many go well before.
        hits: How many of the clients may be hit; the others must not notice.
    """

    name: str
    owner: type
    method: str
    happens: Call
    level: int | None = None
    after_calls: int = 0
    hits: int = 1


def no_numbers(original: Call, *args: Any) -> Any:
    """Let the first row of a result be no numbers."""
    result = original(*args).clone()
    result[0] = torch.nan
    return result


def raises(error: BaseException) -> Call:
    """Return what raises an error in place of a call."""

    def fail(*_: Any) -> Any:
        raise error

    return fail


FAULTS = (
    Fault("level 0 gives NaN", Valle, "logits", no_numbers, level=0, after_calls=40),
    Fault(
        "a prefix finds no memory",
        Valle,
        "prefix",
        raises(torch.OutOfMemoryError("no memory, on purpose")),
        after_calls=1,
    ),
    Fault(
        "the codec raises",
        DecoderStream,
        "push",
        raises(RuntimeError("broken on purpose")),
        after_calls=4,
    ),
    Fault("the codec gives NaN", DecoderStream, "push", no_numbers, after_calls=4),
    Fault(
        "the worker of level 0 is killed",
        Valle,
        "logits",
        raises(WorkerKilled("on purpose")),
        level=0,
        after_calls=40,
        hits=CLIENTS,
    ),
    Fault(
        "the worker of the codec is killed",
        DecoderStream,
        "push",
        raises(WorkerKilled("on purpose")),
        after_calls=4,
        hits=CLIENTS,
    ),
)


@contextmanager
def injected(fault: Fault) -> Iterator[threading.Event]:
    """Let it break once; the event tells whether it did."""
    original, calls, happened = getattr(fault.owner, fault.method), count(), threading.Event()

    def instead(*args: Any, **kwargs: Any) -> Any:
        meant = fault.level is None or args[-1] == fault.level
        if meant and not happened.is_set() and next(calls) >= fault.after_calls:
            happened.set()
            return fault.happens(original, *args, **kwargs)
        return original(*args, **kwargs)

    setattr(fault.owner, fault.method, instead)
    try:
        yield happened
    finally:
        setattr(fault.owner, fault.method, original)


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
    unhit = seen.count("whole") >= CLIENTS - fault.hits
    in_time, told = took_s < REQUEST_TIMEOUT_S, "OTHER BYTES" not in seen
    return {
        "fault": fault.name,
        "clients saw": summed(seen) if happened.is_set() else "IT DID NOT HAPPEN",
        "next request": following,
        "seconds": took_s,
        "as asked": all([happened.is_set(), unhit, in_time, told, following == "whole", idle]),
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
    rows = []
    async with listening(url) as client:
        clients = Clients(client)
        await clients.learn()
        for fault in faults:
            rows.append(await row_of(fault, clients, url))
        rows.append(await stall_row(clients, url))
        rows.append(await crowd_row(clients, client, url))
    return rows


def main() -> int:
    """Break, print one table and write JSON."""
    parser = argument_parser(__doc__, needs_vitals=True)
    parser.add_argument("--only", help="faults whose name has this word")
    args: argparse.Namespace = parser.parse_args()
    started = machine()
    logging.basicConfig(level=logging.CRITICAL)
    faults = [fault for fault in FAULTS if args.only is None or args.only in fault.name]
    settings = Settings(
        max_queue=MAX_QUEUE, stall_timeout_s=STALL_TIMEOUT_S, request_timeout_s=REQUEST_TIMEOUT_S
    )
    with served_here(observed_app(settings)) as url:
        rows = asyncio.run(measure(url, faults))
    other = sum(not row["as asked"] for row in rows)
    return conclude(rows, [Gate("faults not borne", other, "0", other == 0)], args.out, started)


if __name__ == "__main__":
    sys.exit(main())
