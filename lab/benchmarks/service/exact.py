"""Reproducibility benchmark: a request gives the same codes and bytes under any load.

    python -m lab.benchmarks.service.exact --out exact.json

Each request, with its own seed and preset, is sent alone for a whole response; then streamed, over
the WebSocket, beside 7 others whole and streamed, and while 7 others disconnect at random moments.
The figure is how many responses are identical to the first, by their codes and by all audio bytes.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx2
from tqdm import tqdm

from app.commands.bench.listeners import ReceivedSpeech, receive
from lab.benchmarks.harness.http_client import codes_sha256, open_client
from lab.benchmarks.harness.report import Target, argument_parser, conclude, machine, target
from lab.benchmarks.harness.served import served_or
from lab.benchmarks.harness.texts import texts
from lab.benchmarks.harness.websocket_client import receive_live

OTHERS = 7
PRESETS = ("auto", "default", "greedy", "stable", "expressive")
LEAVE_WITHIN_S = 1.0
OTHERS_SEED = 1_000_000


@dataclass(frozen=True)
class SeededRequest:
    """A request with everything that its response depends on."""

    text: str
    seed: int
    preset: str
    max_duration_s: float | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Its fields without the text."""
        limit = {} if self.max_duration_s is None else {"max_duration_s": self.max_duration_s}
        return {"seed": self.seed, "preset": self.preset, **limit}


@dataclass(frozen=True)
class Fingerprint:
    """Hashes of a response; responses are identical if these are equal."""

    codes: str  # hash of its codes
    sound: str  # hash of its audio bytes


Speak = Callable[[SeededRequest], Awaitable[Fingerprint]]


def requests(count: int, sentences_each: int = 1) -> list[SeededRequest]:
    """Return requests with different texts and seeds, and presets in turn."""
    inputs = texts(count, sentences_each=sentences_each)
    return [
        SeededRequest(text, seed, PRESETS[seed % len(PRESETS)])
        for seed, text in enumerate(inputs, 1)
    ]


class FingerprintClient:
    """Sends requests in different ways and returns the fingerprints of their responses."""

    def __init__(self, client: httpx2.AsyncClient, url: str) -> None:
        self._client, self._url = client, url

    async def whole(self, request: SeededRequest) -> Fingerprint:
        """Request a whole response."""
        return await self._fingerprint(
            await receive(self._client, request.text, stream=False, **request.fields)
        )

    async def streamed(self, request: SeededRequest) -> Fingerprint:
        """Request a streamed response."""
        return await self._fingerprint(await receive(self._client, request.text, **request.fields))

    async def live(self, request: SeededRequest) -> Fingerprint:
        """Request speech over the WebSocket."""
        return await self._fingerprint(
            await receive_live(self._url, request.text, **request.fields)
        )

    async def leave(self, request: SeededRequest, after_s: float) -> None:
        """Disconnect after a time."""
        try:
            async with asyncio.timeout(after_s):
                await receive(self._client, request.text, **request.fields)
        except TimeoutError:
            pass

    async def _fingerprint(self, received: ReceivedSpeech) -> Fingerprint:
        """Return the fingerprint of a response."""
        if not received.ok:
            raise RuntimeError(f"{received.status} {received.broke}: {received.sound[:300]!r}")
        return Fingerprint(await codes_sha256(self._client, received), received.sound_sha256)


async def one_by_one(speak: Speak, wanted: Sequence[SeededRequest]) -> list[Fingerprint]:
    """Send requests sequentially."""
    return [await speak(request) for request in wanted]


async def among_others(speak: Speak, wanted: Sequence[SeededRequest]) -> list[Fingerprint]:
    """Send requests eight at a time; further requests keep it eight until the end."""
    found = dict[int, Fingerprint]()
    others = [replace(one, seed=OTHERS_SEED + one.seed) for one in wanted[:OTHERS]]
    waiting = iter([*enumerate(wanted), *((-1, other) for other in others)])

    async def client() -> None:
        for number, request in waiting:
            received = await speak(request)
            if number >= 0:
                found[number] = received

    await asyncio.gather(*(client() for _ in range(1 + OTHERS)))
    return [found[number] for number in range(len(wanted))]


async def while_others_leave(
    sender: FingerprintClient, wanted: Sequence[SeededRequest]
) -> list[Fingerprint]:
    """Send requests sequentially beside clients that connect and disconnect."""
    generator = random.Random(0)

    async def come_and_leave() -> None:
        while True:
            other = generator.choice(wanted)
            await sender.leave(other, generator.uniform(0, LEAVE_WITHIN_S))

    leavers = [asyncio.create_task(come_and_leave()) for _ in range(OTHERS)]
    try:
        return await one_by_one(sender.streamed, wanted)
    finally:
        for leaver in leavers:
            leaver.cancel()
        await asyncio.gather(*leavers, return_exceptions=True)


async def measure(url: str, wanted: Sequence[SeededRequest]) -> list[dict[str, Any]]:
    """Return a table row for each way of requesting, with the number of identical responses."""
    async with open_client(url) as client:
        sender = FingerprintClient(client, url)
        first = await one_by_one(sender.whole, wanted)
        manners: dict[str, Callable[[], Awaitable[list[Fingerprint]]]] = {
            "alone, whole, again": lambda: one_by_one(sender.whole, wanted),
            "alone, streamed": lambda: one_by_one(sender.streamed, wanted),
            "alone, over the WebSocket": lambda: one_by_one(sender.live, wanted),
            f"among {OTHERS} others, whole": lambda: among_others(sender.whole, wanted),
            f"among {OTHERS} others, streamed": lambda: among_others(sender.streamed, wanted),
            f"while {OTHERS} others leave": lambda: while_others_leave(sender, wanted),
        }
        rows = []
        for manner, speak in tqdm(manners.items(), disable=None):
            pairs = list(zip(first, await speak(), strict=True))
            rows.append({
                "manner": manner,
                "requests": len(pairs),
                "same codes": sum(one.codes == other.codes for one, other in pairs),
                "same bytes": sum(one.sound == other.sound for one, other in pairs),
            })
        return rows


def targets_of(rows: Sequence[dict[str, Any]]) -> list[Target]:
    """Return the target: all responses are identical."""
    other = sum(2 * row["requests"] - row["same codes"] - row["same bytes"] for row in rows)
    return [target("codes or bytes that are not those of the first", other, "==", 0)]


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, url=True)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--sentences", type=int, default=1, help="of a text")
    return parser.parse_args()


def main() -> int:
    """Run the command line."""
    args, started = _arguments(), machine()
    with served_or(args.url, max_queue=64) as url:
        rows = asyncio.run(measure(url, requests(args.requests, args.sentences)))
    return conclude(rows, targets_of(rows), args.out, started)


if __name__ == "__main__":
    sys.exit(main())
