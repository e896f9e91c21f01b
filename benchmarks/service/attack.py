"""A stranger's short request beside clients that send the dearest texts without a pause.

    python -m benchmarks.service.attack --out attack.json

For each kind of text four clients in a process of their own, at another address than the
stranger's, ask again as soon as they are answered. The stranger asks for "Hello there." again and
again, a pause between two requests. Time to the last byte of the whole answer, with nobody beside,
then with the attack, by turns; the target is the ratio of the medians.
"""

import multiprocessing
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np

from benchmarks.harness.http_client import TIMEOUT_S
from benchmarks.harness.report import Target, conclude, machine
from benchmarks.harness.served import argument_parser, served_or

CHARS, ATTACKERS = 4096, 4
ATTACKERS_ADDRESS, STRANGERS_ADDRESS = "127.0.0.2", "127.0.0.1"
PAUSE_S, SETTLE_S = 0.2, 2.0
RATIO = 2.0
TEXT = "Hello there."
PROSE = "The lamp on the table was lit when the doctor came home from the long voyage. "
TEXTS: Mapping[str, str] = {
    "pauses": "a[pause:5s]" * 8,
    "prose": (PROSE * CHARS)[:CHARS],
    "initials": (("a" * 2700) + " " + "b. " * 465)[:CHARS],
    "digits": ("1234567890 " * CHARS)[:CHARS],
    "a text that is refused": "√" * CHARS,
}
"""What the attackers send, by name."""


def attack(url: str, text: str) -> None:
    """Send a text from several threads until the process is terminated."""

    def ask() -> None:
        transport = httpx.HTTPTransport(local_address=ATTACKERS_ADDRESS)
        with httpx.Client(base_url=url, transport=transport, timeout=None) as client:
            while True:
                client.post("/tts", json={"input": text})

    threads = [threading.Thread(target=ask) for _ in range(ATTACKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def attacked(url: str, text: str) -> Iterator[None]:
    """Attack for the duration of a context."""
    process = multiprocessing.get_context("spawn").Process(target=attack, args=(url, text))
    process.start()
    time.sleep(SETTLE_S)
    try:
        yield
    finally:
        process.terminate()
        process.join()
        time.sleep(SETTLE_S)


def ask_often(url: str, count: int, first_seed: int) -> list[float]:
    """Return the seconds to the last byte of each of the stranger's requests."""
    transport = httpx.HTTPTransport(local_address=STRANGERS_ADDRESS)
    took_s = []
    with httpx.Client(base_url=url, transport=transport, timeout=TIMEOUT_S) as client:
        for number in range(count):
            began_s = time.perf_counter()
            body = {"input": TEXT, "seed": first_seed + number, "response_format": "wav"}
            client.post("/tts", json=body).raise_for_status()
            took_s.append(time.perf_counter() - began_s)
            time.sleep(PAUSE_S)
    return took_s


def measure(url: str, count: int, kinds: list[str]) -> list[dict[str, Any]]:
    """Return a row of the table for each kind of text."""
    ask_often(url, 3, 0)
    rows = []
    for kind in kinds:
        alone_s = ask_often(url, count, 0)
        with attacked(url, TEXTS[kind]):
            beside_s = ask_often(url, count, 0)
        alone, beside = float(np.median(alone_s)), float(np.median(beside_s))
        rows.append({
            "attack": kind,
            "alone, ms": 1000 * alone,
            "beside, ms": 1000 * beside,
            "beside p95, ms": 1000 * float(np.percentile(beside_s, 95)),
            "ratio": beside / alone,
        })
    return rows


def main() -> int:
    """Run the command line."""
    parser = argument_parser(__doc__, needs_vitals=False)
    parser.add_argument("--requests", type=int, default=15, help="of the stranger, a row")
    parser.add_argument("--kind", action="append", choices=TEXTS, help="instead of all")
    args, started = parser.parse_args(), machine()
    with served_or(args.url) as url:
        rows = measure(url, args.requests, args.kind or list(TEXTS))
    targets = [
        Target(
            f"ratio beside {row['attack']}", row["ratio"], f"<= {RATIO:g}", row["ratio"] <= RATIO
        )
        for row in rows
    ]
    return conclude(rows, targets, args.out, started)


if __name__ == "__main__":
    sys.exit(main())
