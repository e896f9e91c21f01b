"""Whether a request gives the same codes and the same bytes whatever goes on beside it.

    python -m benchmarks.service.exact --out exact.json

Each request, with a seed and a preset of its own, is spoken alone and whole; then alone and
streamed, over the WebSocket, among 7 others whole and streamed, and while 7 others leave at random
moments. The figure is how many are identical to the first, by the hash of their codes and by all
their bytes of sound.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
from tqdm import tqdm

from benchmarks.harness.listener import Heard, codes_sha256, hear, listening
from benchmarks.harness.live_listener import hear_live
from benchmarks.harness.report import Gate, conclude, machine
from benchmarks.harness.served import argument_parser, served_or
from benchmarks.harness.texts import texts

OTHERS = 7
PRESETS = ("auto", "default", "greedy", "stable", "expressive")
LEAVE_WITHIN_S = 1.0
OTHERS_SEED = 1_000_000


@dataclass(frozen=True)
class Request:
    """What is asked for, with nothing left open."""

    text: str
    seed: int
    preset: str
    max_duration_s: float | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Those beside the text."""
        limit = {} if self.max_duration_s is None else {"max_duration_s": self.max_duration_s}
        return {"seed": self.seed, "preset": self.preset, **limit}


@dataclass(frozen=True)
class Print:
    """What one answer was; two are identical if these are equal.

    Attributes:
        codes: Hash of its codes.
        sound: Hash of its bytes.
    """

    codes: str
    sound: str


Speak = Callable[[Request], Awaitable[Print]]


def requests(count: int, sentences_each: int = 1) -> list[Request]:
    """Return requests that differ in text, seed and, in turn, preset."""
    said = texts(count, sentences_each=sentences_each)
    return [Request(text, seed, PRESETS[seed % len(PRESETS)]) for seed, text in enumerate(said, 1)]


class Listener:
    """Takes prints of requests, each in one manner."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client, self._url = client, url

    async def whole(self, request: Request) -> Print:
        """Hear it in one piece."""
        return await self._print(
            await hear(self._client, request.text, stream=False, **request.fields)
        )

    async def streamed(self, request: Request) -> Print:
        """Hear it while it is made."""
        return await self._print(await hear(self._client, request.text, **request.fields))

    async def live(self, request: Request) -> Print:
        """Hear it over the WebSocket."""
        return await self._print(await hear_live(self._url, request.text, **request.fields))

    async def leave(self, request: Request, after_s: float) -> None:
        """Leave in the middle."""
        try:
            async with asyncio.timeout(after_s):
                await hear(self._client, request.text, **request.fields)
        except TimeoutError:
            pass

    async def _print(self, heard: Heard) -> Print:
        """Return the prints.

        Raises:
            RuntimeError: There was no whole speech.
        """
        if not heard.ok:
            raise RuntimeError(f"{heard.status} {heard.broke}: {heard.sound[:300]!r}")
        return Print(await codes_sha256(self._client, heard), heard.sound_sha256)


async def one_by_one(speak: Speak, wanted: Sequence[Request]) -> list[Print]:
    """Speak requests, each alone."""
    return [await speak(request) for request in wanted]


async def among_others(speak: Speak, wanted: Sequence[Request]) -> list[Print]:
    """Speak requests together, always eight at a time; others fill in at the end."""
    found = dict[int, Print]()
    others = [replace(one, seed=OTHERS_SEED + one.seed) for one in wanted[:OTHERS]]
    waiting = iter([*enumerate(wanted), *((-1, other) for other in others)])

    async def client() -> None:
        for number, request in waiting:
            heard = await speak(request)
            if number >= 0:
                found[number] = heard

    await asyncio.gather(*(client() for _ in range(1 + OTHERS)))
    return [found[number] for number in range(len(wanted))]


async def while_others_leave(listener: Listener, wanted: Sequence[Request]) -> list[Print]:
    """Speak requests one after another beside clients who come and leave."""
    generator = random.Random(0)

    async def come_and_leave() -> None:
        while True:
            other = generator.choice(wanted)
            await listener.leave(other, generator.uniform(0, LEAVE_WITHIN_S))

    leavers = [asyncio.create_task(come_and_leave()) for _ in range(OTHERS)]
    try:
        return await one_by_one(listener.streamed, wanted)
    finally:
        for leaver in leavers:
            leaver.cancel()
        await asyncio.gather(*leavers, return_exceptions=True)


async def measure(url: str, wanted: Sequence[Request]) -> list[dict[str, Any]]:
    """Return a row a manner, how many are as those spoken alone and whole."""
    async with listening(url) as client:
        listener = Listener(client, url)
        first = await one_by_one(listener.whole, wanted)
        manners: dict[str, Callable[[], Awaitable[list[Print]]]] = {
            "alone, whole, again": lambda: one_by_one(listener.whole, wanted),
            "alone, streamed": lambda: one_by_one(listener.streamed, wanted),
            "alone, over the WebSocket": lambda: one_by_one(listener.live, wanted),
            f"among {OTHERS} others, whole": lambda: among_others(listener.whole, wanted),
            f"among {OTHERS} others, streamed": lambda: among_others(listener.streamed, wanted),
            f"while {OTHERS} others leave": lambda: while_others_leave(listener, wanted),
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


def gates_of(rows: Sequence[dict[str, Any]]) -> list[Gate]:
    """Ask that all be identical."""
    other = sum(2 * row["requests"] - row["same codes"] - row["same bytes"] for row in rows)
    return [Gate("codes or bytes that are not those of the first", other, "0", other == 0)]


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, needs_vitals=False)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--sentences", type=int, default=1, help="of a text")
    return parser.parse_args()


def main() -> int:
    """Compare, print one table and write JSON."""
    args, started = _arguments(), machine()
    with served_or(args.url, max_queue=64) as url:
        rows = asyncio.run(measure(url, requests(args.requests, args.sentences)))
    return conclude(rows, gates_of(rows), args.out, started)


if __name__ == "__main__":
    sys.exit(main())
