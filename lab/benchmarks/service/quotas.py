"""Admission benchmark: a server under a CPU quota accepts only requests that it can serve.

    python -m lab.benchmarks.service.quotas --out quotas.json

For each quota a server is started in a cgroup with that share of the machine, and asked how many
listeners it can serve (`GET /health`). Then requests arrive at random at 0.5, 0.9 and 1.5 times
that rate. Figures: gaps in playback of accepted requests, refused requests, time to first sound.
Needs root and an idle machine; clients run outside the cgroup.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import perf_counter

import httpx2

from app.commands.bench.listeners import Figures, figures, receive
from lab.benchmarks.harness.http_client import open_client
from lab.benchmarks.harness.report import Target, argument_parser, conclude, machine, target
from lab.benchmarks.harness.served import served
from lab.benchmarks.harness.texts import texts
from lab.benchmarks.service.load import arriving, audio_rate

_PERIOD_US = 100_000
_LEAVING_TRIES = 100
_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class QuotaResult(Figures):
    """Figures of one load."""

    quota: int  # percent of the machine
    streams: int  # capacity in streams, as reported by the server before the load
    speed: float  # load relative to ``streams``
    refused: int  # requests refused with 503 and Retry-After, of those that failed


@contextmanager
def held_to(percent: int) -> Iterator[list[str]]:
    """Yield the command line prefix that runs a process tree within a CPU quota."""
    quota_us = round(_PERIOD_US * len(os.sched_getaffinity(0)) * percent / 100)
    root = _V1 if _V1.is_dir() else _V2
    group = root / f"valle-serve-{os.getpid()}-{percent}"
    group.mkdir()
    try:
        if root is _V1:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        yield ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")]
    finally:
        for _ in range(_LEAVING_TRIES):  # the server's processes may still be ending
            if not (group / "cgroup.procs").read_text():
                break
            time.sleep(0.1)
        group.rmdir()


async def load(
    client: httpx2.AsyncClient, quota: int, share: float, streams: int, text_s: float, count: int
) -> QuotaResult:
    """Send ``count`` requests at ``share`` of the rate that keeps ``streams`` playing."""
    rate_hz = share * max(1, streams) / text_s
    began_s = perf_counter()
    received = await arriving(client, texts(count), rate_hz, seed=quota)
    found = figures(f"{quota} %", received, audio_rate(received, began_s))
    refused = sum(one.status == httpx2.codes.SERVICE_UNAVAILABLE for one in received)
    return QuotaResult(**vars(found), quota=quota, streams=streams, speed=share, refused=refused)


async def measure(url: str, quota: int, args: argparse.Namespace) -> list[QuotaResult]:
    """Query the server's capacity and send loads below and above it."""
    rows = []
    async with open_client(url) as client:
        lone = [await receive(client, text) for text in texts(args.alone)]
        text_s = fmean(one.audio_s for one in lone)
        for share in args.shares:
            streams = (await client.get("/health")).json()["streams"]
            rows.append(await load(client, quota, share, streams, text_s, args.arrivals))
            print(rows[-1], flush=True)
    return rows


def targets_of(row: QuotaResult) -> list[Target]:
    """Return the targets of a load."""
    name = f"{row.quota} %, {row.speed:g} of {row.streams} streams"
    return [target(f"{name}: with a gap, or failed", row.gaps + row.failed - row.refused, "==", 0)]


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("--quotas", type=int, nargs="*", default=[100, 50, 25], help="percent")
    parser.add_argument("--shares", type=float, nargs="*", default=[0.5, 0.9, 1.5])
    parser.add_argument("--arrivals", type=int, default=40, help="listeners of each load")
    parser.add_argument("--alone", type=int, default=6, help="texts that are spoken before")
    return parser.parse_args()


def main() -> int:
    """Run the command line."""
    args, started = _arguments(), machine()
    rows: list[QuotaResult] = []
    for quota in args.quotas:
        with held_to(quota) as prefix, served(prefix, keep=512) as url:
            rows += asyncio.run(measure(url, quota, args))
    targets = [target for row in rows for target in targets_of(row)]
    return conclude([vars(row) for row in rows], targets, args.out, started)


if __name__ == "__main__":
    sys.exit(main())
