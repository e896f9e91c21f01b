"""A stranger beside hostile clients, after a busy minute, and in a queue that is too long.

    python -m lab.benchmarks.service.strangers --out strangers.json
    python -m lab.benchmarks.service.strangers --parts rested waits --seconds 20

Clients are loopback addresses. `hostile`: the first sound of a stranger's sentence beside streams
of one other client, each kind in turn between two of the stranger alone and beside plain texts.
`rested`: the first sounds of a service that was busy and rests, beside those of a fresh one.
`waits`: sentences at a rate that is too high, from one client; none may wait for longer than
`TTS_MAX_WAIT_S`. Ratios within one run count, seconds are those of the machine as it is.
"""

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any, Final
from urllib.parse import urlsplit

from lab.benchmarks.harness.report import Target, argument_parser, conclude, machine, target
from lab.benchmarks.harness.served import served

STRANGER, HOSTILE = "127.0.0.9", "127.0.0.2"
SENTENCE: Final = "Hello there."
LONG: Final = (
    "It was a long day, and it went on and on, until nobody knew what it was about. " * 50
)[:4000]
MAX_WAIT_S: Final = 15.0
REST_S: Final = 6.0

KINDS: Final[Mapping[str, tuple[int, Mapping[str, Any]]]] = {
    "plain x4": (4, {}),
    "plain x16": (16, {}),
    "beam x4": (4, {"beam_width": 8}),
    "best_of x4": (4, {"best_of": 8}),
    "branch x4": (
        4,
        {
            "entropix": True,
            "entropix_action": "branch",
            "entropix_branch_rollouts": 8,
            "entropix_branch_frames": 75,
            "entropix_branch_interval": 1,
            "entropix_hehv_entropy": 0,
            "entropix_high_varentropy": 0,
        },
    ),
    "bans x16": (
        16,
        {
            "ban_tokens": list(range(64)),
            "dry_multiplier": 0.8,
            "dry_allowed_length": 2,
            "repetition_penalty": 1.1,
            "frequency_penalty": 0.1,
            "presence_penalty": 0.1,
            "trace": True,
            "top_logprobs": 20,
        },
    ),
}
"""How many streams of the hostile client, and their knobs."""


@dataclass
class Heard:
    """An answer as it came."""

    status: int = 0
    first_s: float = 0.0
    whole_s: float = 0.0
    retry_after: str | None = None


class Client:
    """Requests from one loopback address."""

    def __init__(self, url: str, address: str) -> None:
        parts = urlsplit(url)
        self._place, self._address = (parts.hostname or "", parts.port or 80), address
        self._open: list[http.client.HTTPConnection] = []

    def ask(self, text: str, **fields: Any) -> Heard:
        """Have a text streamed, to its end."""
        connection = http.client.HTTPConnection(
            *self._place, timeout=400, source_address=(self._address, 0)
        )
        self._open.append(connection)
        body = json.dumps({"input": text, "stream": True, "response_format": "pcm"} | fields)
        began_s, heard = time.monotonic(), Heard()
        with suppress(OSError, http.client.HTTPException):
            connection.request("POST", "/tts", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            heard.status, heard.retry_after = answer.status, answer.getheader("retry-after")
            answer.read(1)
            heard.first_s = time.monotonic() - began_s
            answer.read()
            heard.whole_s = time.monotonic() - began_s
        connection.close()
        return heard

    def leave(self) -> None:
        """End all answers that are under way."""
        for connection in self._open:
            with suppress(OSError):
                if connection.sock is not None:
                    connection.sock.shutdown(2)
        self._open.clear()


def in_threads(count: int, work: Callable[[int], object]) -> list[threading.Thread]:
    """Begin a number of threads, which are given their numbers."""
    threads = [
        threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)
    ]
    for one in threads:
        one.start()
    return threads


def sentences(stranger: Client, count: int) -> list[Heard]:
    """Have a stranger's sentences spoken, one after another; raises RuntimeError if refused."""
    heard = [stranger.ask(SENTENCE, seed=number) for number in range(count)]
    if refused := [one.status for one in heard if one.status != 200]:
        raise RuntimeError(f"the stranger was answered with {refused}")
    return heard


def first_of(stranger: Client) -> float:
    """Return the median first sound of three of a stranger's sentences, in seconds."""
    return median(one.first_s for one in sentences(stranger, 3))


def beside(url: str, kind: str, seconds: float) -> float:
    """Return a stranger's first sound beside hostile streams, which end after some seconds."""
    count, knobs = KINDS[kind]
    hostile, stranger = Client(url, HOSTILE), Client(url, STRANGER)
    threads = in_threads(count, lambda number: hostile.ask(LONG, seed=number, **knobs))
    time.sleep(min(4.0, seconds / 3))
    cut = threading.Timer(seconds, hostile.leave)
    cut.start()
    first_s = first_of(stranger)
    cut.cancel()
    hostile.leave()
    for one in threads:
        one.join(60)
    return first_s


def hostile_rows(
    url: str, seconds: float, rounds: int
) -> tuple[list[dict[str, Any]], list[Target]]:
    """Measure the part `hostile`."""
    found: dict[str, list[float]] = {kind: [] for kind in ("nobody", *KINDS)}
    stranger = Client(url, STRANGER)
    for _ in range(rounds):
        found["nobody"].append(first_of(stranger))
        for kind in KINDS:
            found[kind].append(beside(url, kind, seconds))
            time.sleep(REST_S)
    rows = [
        {"part": "hostile", "what": f"first sound beside {kind}, s", "figure": median(times)}
        for kind, times in found.items()
    ]
    bound_s = max(median(found["plain x16"]), median(found["nobody"]))
    targets = [
        target(f"beside {kind}, over plain x16", median(found[kind]) / bound_s, "<=", 1.0)
        for kind in KINDS
        if not kind.startswith("plain")
    ]
    return rows, targets


def rested_rows(url: str, seconds: float, rounds: int) -> tuple[list[dict[str, Any]], list[Target]]:
    """Measure the part `rested`: the service was not asked for anything before."""
    stranger, crowd = Client(url, STRANGER), Client(url, HOSTILE)
    fresh = sentences(stranger, 4 * rounds)
    ends_s = time.monotonic() + seconds

    def busy(number: int) -> None:
        while time.monotonic() < ends_s:
            crowd.ask(SENTENCE * 3, seed=number)

    for one in in_threads(6, busy):
        one.join()
    time.sleep(REST_S)
    later = sentences(stranger, 4 * rounds)
    rows = []
    for name, some in (("fresh", fresh), ("after a busy time, rested", later)):
        rows += [
            {"part": "rested", "what": f"first sound, {name}, s", "figure": _first(some)},
            {"part": "rested", "what": f"share of the clip, {name}", "figure": _share(some)},
        ]
    ratio = _first(later) / _first(fresh)
    return rows, [target("rested over fresh, first sound", ratio, "<", 1.2)]


def _first(some: list[Heard]) -> float:
    return median(one.first_s for one in some[1:])


def _share(some: list[Heard]) -> float:
    return median(one.first_s / one.whole_s for one in some[1:])


def waits_rows(
    url: str, seconds: float, rate_hz: float
) -> tuple[list[dict[str, Any]], list[Target]]:
    """Measure the part `waits`."""
    client, heard = Client(url, HOSTILE), list[Heard]()
    text = "The quick brown fox jumps over the lazy dog near the bank of the river."

    def ask(number: int) -> None:
        time.sleep(number / rate_hz)
        heard.append(client.ask(text, seed=number))

    for one in in_threads(round(rate_hz * seconds), ask):
        one.join(400)
    spoken = [one.first_s for one in heard if one.status == 200]
    refused = [one for one in heard if one.status == 503]
    rows = [
        {"part": "waits", "what": "spoken", "figure": len(spoken)},
        {"part": "waits", "what": "refused at once", "figure": len(refused)},
        {"part": "waits", "what": "longest first sound, s", "figure": max(spoken, default=0.0)},
        {
            "part": "waits",
            "what": "longest refusal, s",
            "figure": max((one.first_s for one in refused), default=0.0),
        },
    ]
    late = sum(first_s > MAX_WAIT_S for first_s in spoken)
    told = sum(one.retry_after is not None for one in refused)
    return rows, [
        target(f"first sounds after more than {MAX_WAIT_S:g} s", late, "==", 0),
        target("refusals without Retry-After", len(refused) - told, "==", 0),
    ]


def main() -> int:
    """Run the command line."""
    parser = argument_parser(__doc__)
    parser.add_argument("--parts", nargs="+", default=["rested", "hostile", "waits"])
    parser.add_argument("--seconds", type=float, default=40.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second of `waits`")
    args, started = parser.parse_args(), machine()
    rows, targets = list[dict[str, Any]](), list[Target]()
    measures = {
        "rested": lambda url: rested_rows(url, args.seconds, args.rounds),
        "hostile": lambda url: hostile_rows(url, args.seconds, args.rounds),
        "waits": lambda url: waits_rows(url, args.seconds, args.rate),
    }
    for part in args.parts:  # each with a service of its own
        with served(max_wait_s=MAX_WAIT_S, max_queue=64) as url:
            more, held = measures[part](url)
        rows += more
        targets += held
    return conclude(rows, targets, args.out, started)


if __name__ == "__main__":
    sys.exit(main())
