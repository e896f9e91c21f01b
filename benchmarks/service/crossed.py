"""Whether anybody ever hears what another asked for.

    python -m benchmarks.service.crossed --out crossed.json

Sixteen clients ask at once, each for texts of its own, whole, streamed and over the WebSocket in
turn. What each text gives is known from when it was spoken alone, with the same seed: an answer is
its own if its codes and all its bytes are. No two texts may give the same.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tqdm import tqdm

from benchmarks.harness.listener import listening
from benchmarks.harness.report import Gate, conclude, machine
from benchmarks.harness.served import argument_parser, served_or
from benchmarks.service.exact import Listener, Print, Request, requests

Owned = tuple[Request, Print]


def own_texts(clients: int, each: int) -> list[list[Request]]:
    """Return the requests of every client; no text is another's, though all seeds are equal."""
    wanted = requests(clients * each)
    own = [
        replace(one, text=f"Number {number}, {one.text}", seed=1, preset="auto")
        for number, one in enumerate(wanted, 1)
    ]
    return [own[client::clients] for client in range(clients)]


async def measure(url: str, wanted: Sequence[Sequence[Request]], count: int) -> dict[str, int]:
    """Return how many answers were whose.

    Args:
        url: Of the server.
        wanted: What each client asks for.
        count: Requests of all together.

    Returns:
        How many answers were their own, another's, nobody's, and none; and how many texts cannot
        be told apart.
    """
    async with listening(url) as client:
        listener = Listener(client, url)
        owned = [
            [(request, await listener.whole(request)) for request in own]
            for own in tqdm(wanted, desc="alone", disable=None)
        ]
        known = [print_ for own in owned for _, print_ in own]
        tally = dict.fromkeys(("own", "another's", "nobody's", "failed"), 0)
        turns = iter(tqdm(range(count), desc="together", disable=None))
        await asyncio.gather(*(ask(listener, own, known, turns, tally) for own in owned))
    return tally | {"alike": len(known) - len(set(known))}


async def ask(
    listener: Listener,
    own: Sequence[Owned],
    known: Sequence[Print],
    turns: Iterator[int],
    tally: dict[str, int],
) -> None:
    """Ask for one text after another as long as there are turns, and count whose each answer is."""
    manners = (listener.whole, listener.streamed, listener.live)
    for turn in turns:
        request, expected = own[turn // len(manners) % len(own)]
        try:
            heard = await manners[turn % len(manners)](request)
        except RuntimeError:
            tally["failed"] += 1
            continue
        others = "another's" if heard in known else "nobody's"
        tally["own" if heard == expected else others] += 1


def gates_of(tally: dict[str, int], count: int) -> list[Gate]:
    """Ask that all be their own."""
    return [
        Gate("answers that are their own", tally["own"], f"{count}", tally["own"] == count),
        Gate("texts that sound alike", tally["alike"], "0", tally["alike"] == 0),
    ]


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, needs_vitals=False)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--texts", type=int, default=4, help="of a client")
    parser.add_argument("--requests", type=int, default=1000, help="of all clients")
    return parser.parse_args()


def main() -> int:
    """Ask, print one table and write JSON."""
    args, started = _arguments(), machine()
    with served_or(args.url, max_queue=64) as url:
        wanted = own_texts(args.clients, args.texts)
        tally = asyncio.run(measure(url, wanted, args.requests))
    row: dict[str, Any] = {"clients": args.clients, "requests": args.requests, **tally}
    return conclude([row], gates_of(tally, args.requests), args.out, started)


if __name__ == "__main__":
    sys.exit(main())
