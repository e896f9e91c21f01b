"""Simulate the queues of many replicas: first sound and throughput at a load.

    python -m lab.benchmarks.cluster.simulate --replicas 4 --slots 4 --rate 1.2 --step-ms 100
    python -m lab.benchmarks.cluster.simulate --check http://127.0.0.1:8300 --replicas 2 ...
    python -m lab.benchmarks.cluster.simulate --between http://127.0.0.1:8201 --slots 1 ...
    python -m lab.benchmarks.cluster.simulate --plan

Requests arrive as a Poisson process and go to a replica, that with the fewest requests (`least`) or
the better of two at random (`two`), as Ray's own router chooses. A replica has rows; it steps while
any row is in use, and a step draws a frame of each row. A request that finds no free row waits in
order. So the first sound comes after the wait for a row, the rest of the step that is under way,
and a step; and the costs outside a replica (`--overhead-ms`, of an idle one). A row is free again
`--between-ms` after its request's last step. `--between` measures both apart from any load;
`--check` offers the same load to replicas of `lab.benchmarks.cluster.card` and compares, request by
request too. Where half of the requests just begin to wait a median is not defined by a load, as a
request that comes a millisecond later may have to wait or not; so the figures are also simulated
two hundred times with each arrival up to `--jitter-ms` later (a process is not run at once, a
packet not sent), and with two hundred other arrivals of that rate: from the 5th to the 95th
percentile of each.
"""

import argparse
import asyncio
import heapq
import json
import math
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean, median, quantiles
from typing import Any, Literal

from app.commands.bench.listeners import ReceivedSpeech, receive
from lab.benchmarks.harness.http_client import open_client
from lab.benchmarks.harness.report import print_table

Route = Literal["least", "two"]


@dataclass(frozen=True)
class Load:
    """A load and what serves it."""

    replicas: int
    slots: int  # rows of each
    rate: float  # requests a second, over all
    step_s: float  # seconds of a step
    frames: int  # frames of a request
    first_frames: int = 1  # frames until the first sound
    overhead_s: float = 0.0  # seconds outside the replica until the first sound
    between_s: float = 0.0  # seconds from a request's last frame until its row has another
    route: Route = "least"  # how a replica is chosen
    # A request arrives up to so many seconds later than it was sent, at random
    jitter_s: float = 0.0

    @property
    def utilisation(self) -> float:
        """Part of the rows in use on average."""
        taken_s = self.frames * self.step_s + self.between_s
        return self.rate * taken_s / (self.replicas * self.slots)


class _Replica:
    """Rows, a queue, and when the next step begins."""

    def __init__(self, slots: int) -> None:
        self.slots, self.step_ends_s, self.changed_s = slots, 0.0, 0.0
        self.ends: list[float] = []  # of the requests that have rows

    def load(self, now_s: float) -> int:
        """Return how many requests it has, waiting ones too."""
        while self.ends and self.ends[0] <= now_s:
            self.changed_s = heapq.heappop(self.ends)
        return len(self.ends)

    def take(self, now_s: float, load: Load) -> float:
        """Take a request; return when its first sound is ready."""
        busy = self.load(now_s)
        if busy == 0:
            self.step_ends_s = now_s  # idle: a step begins at once
        # With every row in use, the row of the request that ends as the last one waiting has begun.
        free_s = now_s if busy < self.slots else sorted(self.ends)[busy - self.slots]
        steps = math.ceil(max(0.0, free_s - self.step_ends_s) / load.step_s - 1e-9)
        begins_s = self.step_ends_s + steps * load.step_s
        self.changed_s = now_s
        heapq.heappush(self.ends, begins_s + load.frames * load.step_s + load.between_s)
        return begins_s + load.first_frames * load.step_s


def pauses(load: Load, requests: int, seed: int) -> list[float]:
    """Return the seconds from each request to the next: a Poisson process."""
    random_ = random.Random(seed)
    return [random_.expovariate(load.rate) for _ in range(requests)]


def simulate(
    load: Load, requests: int = 20_000, seed: int = 1, jitter_seed: int = 1
) -> list[float]:
    """Return the seconds to the first sound of each request, but for the first tenth.

    ``seed`` is of arrivals and routes.
    """
    random_ = random.Random(f"routes {seed}")  # arrivals are those of `offer`
    late = random.Random(f"jitter {jitter_seed}")
    replicas = [_Replica(load.slots) for _ in range(load.replicas)]
    sent_s = list(accumulate(pauses(load, requests, seed)))
    arrive_s = [one + late.uniform(0, load.jitter_s) for one in sent_s]
    first_s = [0.0] * requests
    for number in sorted(range(requests), key=arrive_s.__getitem__):
        now_s = arrive_s[number]
        if load.route == "least":
            # Of equal ones HAProxy takes that whose number has not changed for longest.
            counts = [(one.load(now_s), one.changed_s) for one in replicas]
            chosen = counts.index(min(counts))
        else:
            some = random_.sample(range(len(replicas)), min(2, len(replicas)))
            chosen = min(some, key=lambda one: replicas[one].load(now_s))
        ready_s = replicas[chosen].take(now_s, load)
        first_s[number] = ready_s - sent_s[number] + load.overhead_s
    return first_s[requests // 10 :]


def figures(first_s: Sequence[float]) -> dict[str, float]:
    """Return p50 and p95 in milliseconds."""
    return {
        "p50_ms": round(1000 * median(first_s), 1),
        "p95_ms": round(1000 * quantiles(first_s, n=20)[-1], 1),
    }


def between(runs: Iterable[Sequence[float]]) -> dict[str, list[float]]:
    """Return the 5th and the 95th percentile over simulations of their `figures`."""
    found = [figures(one) for one in runs]
    cuts = {name: quantiles([one[name] for one in found], n=20) for name in found[0]}
    return {name: [cut[0], cut[-1]] for name, cut in cuts.items()}


async def offer(url: str, load: Load, requests: int, seed: int) -> list[float]:
    """Offer the load to a service; return the seconds to the first byte of sound of each request.

    In the order of the requests, and as `simulate` without the first tenth.
    """
    first_s = [0.0] * requests
    text = "x" * load.frames

    async def ask(number: int) -> None:
        got = await receive(client, text, seed=number)
        if not got.ok:
            raise RuntimeError(f"{got.status} {got.broke}")
        first_s[number] = got.arrivals[0][0]

    async with open_client(url) as client, asyncio.TaskGroup() as asking:
        at_s = time.monotonic()
        for number, pause_s in enumerate(pauses(load, requests, seed)):
            at_s += pause_s
            await asyncio.sleep(max(0.0, at_s - time.monotonic()))
            asking.create_task(ask(number))
    return first_s[requests // 10 :]


async def measure(url: str, load: Load, requests: int) -> dict[str, float]:
    """Measure what a simulation is told of a service, apart from any load.

    Returns ``overhead_ms``, to the first sound of an idle service without the first steps, and
    ``between_ms``: rows times seconds a request, without the steps, while some requests always
    wait.
    """
    ended_s: list[float] = []
    idle_s: list[float] = []
    text, rows = "x" * load.frames, load.replicas * load.slots

    async def ask(text: str) -> ReceivedSpeech:
        got = await receive(client, text, seed=1)
        if not got.ok:
            raise RuntimeError(f"{got.status} {got.broke}")
        return got

    async def ask_on() -> None:
        while len(ended_s) < requests:
            await ask(text)
            ended_s.append(time.monotonic())

    async with open_client(url) as client:
        for _ in range(20):
            idle_s.append((await ask("x")).arrivals[0][0])
        await asyncio.gather(*(ask_on() for _ in range(2 * rows + 1)))
    # From the end of the rows' first turn to that of their last one, as rows may end together.
    turns = (len(ended_s) - rows) / rows
    taken_s = (ended_s[-1] - ended_s[rows - 1]) / turns
    return {
        "overhead_ms": round(1000 * (median(idle_s) - load.first_frames * load.step_s), 1),
        "between_ms": round(1000 * (taken_s - load.frames * load.step_s), 1),
    }


def check(
    url: str, load: Load, requests: int, seed: int, jitter_s: float, times: int = 200
) -> dict[str, Any]:
    """Offer a load to a service; return what was measured beside what is simulated.

    The intervals are of so many ``times``, and of arrivals late by ``jitter_s``.
    """
    measured = asyncio.run(offer(url, load, requests, seed))
    same = simulate(load, requests, seed)
    late = replace(load, jitter_s=jitter_s)
    jittered = between(simulate(late, requests, seed, one) for one in range(times))
    others = between(simulate(load, requests, one) for one in range(1000, 1000 + times))
    near = [abs(one - other) <= load.step_s for one, other in zip(measured, same, strict=True)]
    return {
        **{f"same_arrivals_{name}": value for name, value in figures(same).items()},
        **{f"measured_{name}": value for name, value in figures(measured).items()},
        **{f"jittered_{name}": value for name, value in jittered.items()},
        **{f"other_arrivals_{name}": value for name, value in others.items()},
        "within_a_step": round(fmean(near), 3),
    }


STREAMS_A_CARD = 128
"""Rows of a card that are used: docs/scale.md says where this and the next are from."""
STEP_S = 0.008
FRAMES_A_S = 75


def plan(sizes: Sequence[int] = (1, 10, 100, 1_000, 10_000)) -> list[dict[str, Any]]:
    """Return what clusters of these numbers of cards serve at a first sound of 300 ms (p95)."""
    rows = []
    for cards in sizes:
        # Past some dozens of replicas one choice of the least busy is as good as another: a hundred
        # stand for more of them.
        simulated = min(cards, 100)
        best: tuple[float, float] = (0.0, 0.0)
        for percent in range(50, 100, 5):
            frames = 8 * FRAMES_A_S
            capacity = simulated * STREAMS_A_CARD / (frames * STEP_S)
            load = Load(
                simulated,
                STREAMS_A_CARD,
                capacity * percent / 100,
                STEP_S,
                frames,
                first_frames=15,
                overhead_s=0.04,
            )
            p95_s = quantiles(simulate(load, min(40_000, 20_000 * simulated)), n=20)[-1]
            if p95_s <= 0.3:
                best = (percent / 100, p95_s)
        used, p95_s = best
        speech_s = cards * STREAMS_A_CARD * used / (STEP_S * FRAMES_A_S)
        rows.append({
            "cards": cards,
            "used": used,
            "first_p95_ms": round(1000 * p95_s),
            "speech_s_a_s": round(speech_s),
            "requests_a_s": round(speech_s / 8, 1),
            "pcm_gbit_s": round(speech_s * 48_000 * 8 / 1e9, 3),
            "mp3_gbit_s": round(speech_s * 64_000 / 1e9, 3),
            "redis_commands_s": round(speech_s / 8 * 5 + speech_s / 8 * 5, 0),
        })
    return rows


def main() -> None:
    """Run a command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plan", action="store_true", help="the table of docs/scale.md")
    parser.add_argument("--check", default="", help="URL of replicas to compare with")
    parser.add_argument("--between", default="", help="URL of a service to measure alone")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--rate", type=float, action="append", help="requests a second")
    parser.add_argument("--step-ms", type=float, default=100)
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--overhead-ms", type=float, default=0)
    parser.add_argument("--between-ms", type=float, default=0)
    parser.add_argument("--route", choices=["least", "two"], default="least")
    parser.add_argument("--jitter-ms", type=float, default=10, help="of the intervals of --check")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7, help="of the arrivals of --check")
    asked = parser.parse_args()
    if asked.plan:
        print_table(plan())
        return
    rows = []
    for rate in asked.rate or [1.0]:
        load = Load(
            asked.replicas,
            asked.slots,
            rate,
            asked.step_ms / 1000,
            asked.frames,
            overhead_s=asked.overhead_ms / 1000,
            between_s=asked.between_ms / 1000,
            route=asked.route,
        )
        row: dict[str, Any] = {"rate": rate, "used": round(load.utilisation, 2)}
        row |= {f"predicted_{name}": value for name, value in figures(simulate(load)).items()}
        if asked.between:
            print(json.dumps(asyncio.run(measure(asked.between, load, asked.requests))))
            return
        if asked.check:
            row |= check(asked.check, load, asked.requests, asked.seed, asked.jitter_ms / 1000)
        rows.append(row)
        print(json.dumps(row), flush=True)
    print_table(rows)


if __name__ == "__main__":
    main()
