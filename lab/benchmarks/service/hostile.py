"""What a hostile recording takes from the service: memory of its main process, a stranger's time.

    python -m lab.benchmarks.service.hostile --out hostile.json

Each file of `lab.benchmarks.harness.hostile_files` is sent to `POST /v1/audio/codes` again and
again by one client at an address of its own, the tiny ones in several connections at once.
Meanwhile a stranger streams a sentence again and again. A row has the file's bytes, the status of
the answer, how much the main process grew at most (resident, looked at twenty times a second), the
stranger's median seconds to the first byte alone and beside, and how many of the stranger's streams
had other bytes than alone: none must.
"""

import hashlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2
import numpy as np
import psutil

from lab.benchmarks.harness.hostile_files import HUGE, TINY
from lab.benchmarks.harness.http_client import TIMEOUT_S
from lab.benchmarks.harness.report import argument_parser, conclude, machine, target
from lab.benchmarks.harness.served import served

MB = 1e6
TEXT = "The lamp on the table was lit when the doctor came home."
HOSTILE_ADDRESS, STRANGERS_ADDRESS = "127.0.0.2", "127.0.0.1"
PATH = "/v1/audio/codes"
LOOK_S, PAUSE_S = 0.05, 0.2
BOUNDS = {"growth, MB": 30.0, "ratio": 1.5, "other bytes": 0}


class Stream(NamedTuple):
    """One of the stranger's streams."""

    first_s: float  # seconds to the first byte
    digest: str  # of all bytes


def client_at(url: str, address: str) -> httpx2.Client:
    """Return a client at an address of its own."""
    transport = httpx2.HTTPTransport(local_address=address)
    return httpx2.Client(base_url=url, transport=transport, timeout=TIMEOUT_S)


def streams(url: str, count: int) -> list[Stream]:
    """Have the stranger stream the sentence some times, each time with the same seed."""
    made = []
    body = {"input": TEXT, "seed": 1, "response_format": "pcm", "stream": True}
    with client_at(url, STRANGERS_ADDRESS) as client:
        for _ in range(count):
            began_s, first_s, digest = time.perf_counter(), None, hashlib.sha256()
            with client.stream("POST", "/tts", json=body) as answer:
                answer.raise_for_status()
                for part in answer.iter_bytes():
                    first_s = time.perf_counter() - began_s if first_s is None else first_s
                    digest.update(part)
            made.append(Stream(first_s or 0.0, digest.hexdigest()))
            time.sleep(PAUSE_S)
    return made


class Attack:
    """Sends a file from some connections until it is ended; counts the answers by status."""

    def __init__(self, url: str, content: bytes, connections: int) -> None:
        self.statuses, self._ended = Counter[int](), threading.Event()
        self._url, self._content = url, content
        self._threads = [threading.Thread(target=self._send) for _ in range(connections)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop, once what was sent is answered."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        with client_at(self._url, HOSTILE_ADDRESS) as client:
            number = 0
            while not self._ended.is_set():
                # Never twice the same: what ended its process once is not read again.
                content = self._content + b"\0" * (1 + number % 1000)
                number += 1
                try:
                    answer = client.post(PATH, content=content, headers={"content-type": "audio/x"})
                except httpx2.TransportError:
                    self.statuses[0] += 1
                    continue
                self.statuses[answer.status_code] += 1
                if answer.status_code == 503:  # too many wait, or other work goes first
                    time.sleep(0.5)


class Growth:
    """The most that a process grew since it was made."""

    def __init__(self, process: psutil.Process) -> None:
        self._process, self._ended = process, threading.Event()
        self._before = process.memory_info().rss
        self.most_bytes = 0
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def end(self) -> float:
        """Stop looking; return the growth in MB."""
        self._ended.set()
        self._thread.join()
        return self.most_bytes / MB

    def _look(self) -> None:
        while not self._ended.wait(LOOK_S):
            grown = self._process.memory_info().rss - self._before
            self.most_bytes = max(self.most_bytes, grown)


@contextmanager
def a_service() -> Iterator[tuple[str, psutil.Process]]:
    """Start a service; yield its URL and its main process."""
    own = psutil.Process()
    before = {one.pid for one in own.children()}
    with served() as url:
        (main,) = [
            one for one in own.children() if one.pid not in before and "python" in one.name()
        ]
        yield url, main


def row_of(
    url: str, main: psutil.Process, name: str, content: bytes, connections: int, count: int
) -> dict[str, Any]:
    """Return the row of a file."""
    alone = streams(url, count)
    growth = Growth(main)
    attack = Attack(url, content, connections)
    try:
        time.sleep(0.5)
        beside = streams(url, count)
    finally:
        attack.end()
        grown_mb = growth.end()
    alone_s, beside_s = (float(np.median([one.first_s for one in of])) for of in (alone, beside))
    expected = alone[0].digest
    return {
        "file": name,
        "bytes": len(content),
        "answers": " ".join(f"{status}:{n}" for status, n in sorted(attack.statuses.items())),
        "growth, MB": round(grown_mb, 1),
        "alone, ms": round(1000 * alone_s),
        "beside, ms": round(1000 * beside_s),
        "ratio": round(beside_s / alone_s, 2),
        "other bytes": sum(one.digest != expected for one in beside),
    }


def measure(names: Sequence[str], count: int, size: int) -> list[dict[str, Any]]:
    """Return the rows of some files, all sent to one service."""
    rows = []
    with a_service() as (url, main):
        streams(url, 2)
        for name in names:
            content = HUGE[name]() if name in HUGE else TINY[name](size)
            connections = 1 if name in HUGE else 3
            row = row_of(url, main, name, content, connections, count)
            sys.stderr.write(f"{row}\n")
            rows.append(row)
    return rows


def main() -> int:
    """Run the command line."""
    parser = argument_parser(__doc__)
    parser.add_argument("--file", action="append", choices=[*HUGE, *TINY], help="instead of all")
    parser.add_argument("--requests", type=int, default=7, help="of the stranger, a row")
    parser.add_argument("--size", type=int, default=10_000_000, help="bytes of the tiny ones")
    args, started = parser.parse_args(), machine()
    rows = measure(args.file or [*HUGE, *TINY], args.requests, args.size)
    targets = [
        target(f"{figure}: {row['file']}", row[figure], "<=", bound)
        for figure, bound in BOUNDS.items()
        for row in rows
    ]
    return conclude(rows, targets, args.out, started)


if __name__ == "__main__":
    sys.exit(main())
