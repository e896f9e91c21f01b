"""Isolation benchmark: no client may receive the speech of another.

    python -m lab.benchmarks.service.crossed --out crossed.json

Sixteen clients send requests at once, each with its own texts, whole, streamed and over the
WebSocket in turn. The response to each text is known from a request alone with the same seed: a
response is the client's own if its codes and all its bytes are equal. No two texts may give the
same response.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tqdm import tqdm

from lab.benchmarks.harness.http_client import open_client
from lab.benchmarks.harness.report import Target, argument_parser, conclude, machine, target
from lab.benchmarks.harness.served import served_or
from lab.benchmarks.service.exact import Fingerprint, FingerprintClient, SeededRequest, requests

Owned = tuple[SeededRequest, Fingerprint]


def own_texts(clients: int, each: int) -> list[list[SeededRequest]]:
    """Return each client's requests: all texts differ, all seeds are equal."""
    wanted = requests(clients * each)
    own = [
        replace(one, text=f"Number {number}, {one.text}", seed=1, preset="auto")
        for number, one in enumerate(wanted, 1)
    ]
    return [own[client::clients] for client in range(clients)]


async def measure(
    url: str, wanted: Sequence[Sequence[SeededRequest]], count: int
) -> dict[str, int]:
    """Send ``count`` requests in all and count whose response each client received.

    Returns counts of ``own``, ``another's``, ``nobody's`` and ``failed`` responses, and of
    texts with equal responses (``alike``).
    """
    async with open_client(url) as client:
        sender = FingerprintClient(client, url)
        owned = [
            [(request, await sender.whole(request)) for request in own]
            for own in tqdm(wanted, desc="alone", disable=None)
        ]
        known = [fingerprint for own in owned for _, fingerprint in own]
        tally = dict.fromkeys(("own", "another's", "nobody's", "failed"), 0)
        turns = iter(tqdm(range(count), desc="together", disable=None))
        await asyncio.gather(*(ask(sender, own, known, turns, tally) for own in owned))
    return tally | {"alike": len(known) - len(set(known))}


async def ask(
    sender: FingerprintClient,
    own: Sequence[Owned],
    known: Sequence[Fingerprint],
    turns: Iterator[int],
    tally: dict[str, int],
) -> None:
    """Send one client's requests while ``turns`` lasts, and count its responses in ``tally``."""
    manners = (sender.whole, sender.streamed, sender.live)
    for turn in turns:
        request, expected = own[turn // len(manners) % len(own)]
        try:
            received = await manners[turn % len(manners)](request)
        except RuntimeError:
            tally["failed"] += 1
            continue
        others = "another's" if received in known else "nobody's"
        tally["own" if received == expected else others] += 1


def targets_of(tally: dict[str, int], count: int) -> list[Target]:
    """Return the targets: all responses are the client's own."""
    return [
        target("answers that are their own", tally["own"], "==", count),
        target("texts that sound alike", tally["alike"], "==", 0),
    ]


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, url=True)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--texts", type=int, default=4, help="of a client")
    parser.add_argument("--requests", type=int, default=1000, help="of all clients")
    return parser.parse_args()


def main() -> int:
    """Run the command line."""
    args, started = _arguments(), machine()
    with served_or(args.url, max_queue=64) as url:
        wanted = own_texts(args.clients, args.texts)
        tally = asyncio.run(measure(url, wanted, args.requests))
    row: dict[str, Any] = {"clients": args.clients, "requests": args.requests, **tally}
    return conclude([row], targets_of(tally, args.requests), args.out, started)


if __name__ == "__main__":
    sys.exit(main())
