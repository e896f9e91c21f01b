"""A stranger's short request beside clients that send the worst inputs without a pause.

    python -m lab.benchmarks.service.attack --findings --out attack.json

For each kind of input four clients in a process of their own, at another address than the
stranger's, ask again as soon as they are answered. The stranger asks for "Hello there." again and
again, a pause between two requests. Time to the last byte of the whole answer, with nobody beside,
then with the attack, by turns; the target is the ratio of the medians. Memory is that of all
processes of the server, before the attack and some seconds after it. Loop lag is the processor time
of the longest callback of the server's event loop during the attack.
"""

import asyncio
import json
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from multiprocessing.synchronize import Event
from typing import Any

import httpx2
import numpy as np
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from app.api.middleware.readers import longest_wait_s
from lab.benchmarks.harness.http_client import TIMEOUT_S
from lab.benchmarks.harness.instrumented import LAG_PATH
from lab.benchmarks.harness.report import argument_parser, conclude, machine, target
from lab.benchmarks.harness.served import served
from lab.benchmarks.harness.vitals import settled_vitals

CHARS, ATTACKERS = 4096, 4
ATTACKERS_ADDRESS, STRANGERS_ADDRESS = "127.0.0.2", "127.0.0.1"
PAUSE_S, SETTLE_S = 0.2, 2.0
BOUNDS = {"ratio": 2.0, "loop lag, ms": 20.0, "memory left, MB": 50.0}
STALL_S = 1.0
"""`stall_timeout_s` of the server, so that unread answers are cut off within the measurement."""
MB = 1e6
TEXT = "Hello there."
PROSE = "The lamp on the table was lit when the doctor came home from the long voyage. "
TEXTS: Mapping[str, str] = {
    "pauses": "a[pause:5s]" * 8,
    "prose": (PROSE * CHARS)[:CHARS],
    "initials": (("a" * 2700) + " " + "b. " * 465)[:CHARS],
    "digits": ("1234567890 " * CHARS)[:CHARS],
    "a text that is refused": "√" * CHARS,
    "a word that ended the process": "'s" * 68,
    "signs that resemble digits": ("http://a.b/1² " * CHARS)[:CHARS],
    "tags that do not end": ("<sub " * CHARS)[:CHARS],
}
"""Texts that the attackers send, by name."""
JSON = {"content-type": "application/json"}
# Made once: what the attackers compute is taken from the server, on the same cores.
CODES = json.dumps({"utterances": [[[1]] * 50_000]})
NUMBERS = [json.dumps({"utterances": [one] * count}) for one, count in ((1, 80_000), ([], 60_000))]
_DATA = b'{"a":[' + b"[]," * 86_000 + b"1]}"
EVENT = b'{"type":"describe","data_length":%d}\n' % len(_DATA) + _DATA
BLANK_PATH = "/v1/text-to-speech/bella/stream-input"
WYOMING_PORT = "ATTACKED_WYOMING_PORT"
LONG_TEXT = json.dumps({"input": "a" * 5_000_000})
Attack = Callable[[httpx2.Client], None]


def speak(text: str, client: httpx2.Client) -> None:
    """Ask for a text."""
    client.post("/tts", json={"input": text})


@cache  # of each attacker one: its speeches are not the attack
def _speech_of_pauses(client: httpx2.Client, seconds: int, speed: float) -> str:
    """Return the path of the audio of a speech of pauses."""
    text = "a [pause:10s]" * (seconds // 10) + " b"
    spoken = client.post("/tts", json={"input": text, "speed": speed, "response_format": "pcm"})
    return f"/v1/audio/speech/{spoken.headers['x-request-id']}/audio"


def send_codes(client: httpx2.Client) -> None:
    """Send codes in place of a speech at a quarter of the speed: two hours of audio once."""
    path = _speech_of_pauses(client, 0, 0.25)
    client.post(path, content=CODES, headers=JSON)


def send_numbers(client: httpx2.Client) -> None:
    """Send many numbers, and many empty lists, in place of codes."""
    path = _speech_of_pauses(client, 0, 1.0)
    for body in NUMBERS:
        client.post(path, content=body, headers=JSON)


def leave_unread(client: httpx2.Client) -> None:
    """Ask for ten minutes of audio several times and read none of it."""
    path = _speech_of_pauses(client, 600, 1.0)
    url = client.base_url
    head = f"GET {path} HTTP/1.1\r\nHost: {url.host}\r\n\r\n".encode()
    connections = []
    for _ in range(4):
        one = socket.create_connection(
            (url.host, url.port or 80), source_address=(ATTACKERS_ADDRESS, 0)
        )
        one.sendall(head)
        connections.append(one)
    time.sleep(2 * longest_wait_s(STALL_S))
    for one in connections:
        one.close()


def send_label(client: httpx2.Client) -> None:
    """Send a text of megabytes that is labelled as an upload."""
    headers = {"content-type": "multipart/form-data; boundary=x"}
    with suppress(httpx2.TransportError):  # the server does not read it to its end
        client.post("/tts", content=LONG_TEXT, headers=headers)


def send_wyoming(client: httpx2.Client) -> None:
    """Send many values as the data of an event to the Wyoming port."""
    port = int(os.environ[WYOMING_PORT])
    source = (ATTACKERS_ADDRESS, 0)
    with socket.create_connection((client.base_url.host, port), 20, source) as one:
        one.sendall(EVENT)
        while one.recv(65_536):
            pass


def send_blank(client: httpx2.Client) -> None:
    """Send text that says nothing to ElevenLabs' socket."""
    url = f"ws://{client.base_url.host}:{client.base_url.port}{BLANK_PATH}"
    with connect(url, source_address=(ATTACKERS_ADDRESS, 0)) as one:
        while True:
            one.send('{"text": " "}')
            time.sleep(0.01)


def stay_idle(client: httpx2.Client) -> None:
    """Open many connections and say nothing."""
    address = client.base_url.host, client.base_url.port or 80
    with ExitStack() as open_:
        for _ in range(200):
            one = socket.create_connection(address, 20, (ATTACKERS_ADDRESS, 0))
            open_.enter_context(one)
        time.sleep(longest_wait_s(STALL_S))


FINDINGS = (
    "a word that ended the process",
    "codes at a quarter of the speed",
    "answers that nobody reads",
    "events of the Wyoming port",
    "blank text at ElevenLabs' socket",
    "idle connections",
    "signs that resemble digits",
    "a label of uploads",
    "numbers in place of codes",
)
"""The worst input of each of nine findings of an attack, by number."""

ATTACKS: Mapping[str, Attack] = {
    **{name: partial(speak, text) for name, text in TEXTS.items()},
    "codes at a quarter of the speed": send_codes,
    "numbers in place of codes": send_numbers,
    "answers that nobody reads": leave_unread,
    "a label of uploads": send_label,
    "events of the Wyoming port": send_wyoming,
    "blank text at ElevenLabs' socket": send_blank,
    "idle connections": stay_idle,
}
"""What the attackers do, by name."""


def attack(url: str, kind: str, begun: Event) -> None:
    """Attack from several threads until the process is terminated."""

    def ask() -> None:
        transport = httpx2.HTTPTransport(local_address=ATTACKERS_ADDRESS)
        with httpx2.Client(base_url=url, transport=transport, timeout=None) as client:
            while True:
                with suppress(httpx2.TransportError, KeyError, OSError, WebSocketException):
                    ATTACKS[kind](client)

    threads = [threading.Thread(target=ask) for _ in range(ATTACKERS)]
    for thread in threads:
        thread.start()
    begun.set()
    for thread in threads:
        thread.join()


@contextmanager
def attacked(url: str, kind: str) -> Iterator[None]:
    """Attack for the duration of a context."""
    spawn = multiprocessing.get_context("spawn")
    begun = spawn.Event()
    process = spawn.Process(target=attack, args=(url, kind, begun))
    process.start()
    assert begun.wait(300)  # its imports take longer than that where others compute
    time.sleep(SETTLE_S)
    try:
        yield
    finally:
        process.terminate()
        process.join()
        time.sleep(SETTLE_S)


def ask_often(url: str, count: int, first_seed: int) -> list[float]:
    """Return the seconds to the last byte of each of the stranger's requests."""
    transport = httpx2.HTTPTransport(local_address=STRANGERS_ADDRESS)
    took_s = []
    with httpx2.Client(base_url=url, transport=transport, timeout=TIMEOUT_S) as client:
        for number in range(count):
            began_s = time.perf_counter()
            body = {"input": TEXT, "seed": first_seed + number, "response_format": "wav"}
            client.post("/tts", json=body).raise_for_status()
            took_s.append(time.perf_counter() - began_s)
            time.sleep(PAUSE_S)
    return took_s


def loop_lag_s(url: str) -> float:
    """Return the processor time of the longest callback since this was asked last."""
    told = httpx2.get(url + LAG_PATH).raise_for_status().json()
    sys.stderr.write(f"longest callback, {1000 * told['cpu_s']:.1f} ms: {told['what']}\n")
    return float(told["cpu_s"])


def measure(url: str, count: int, kinds: list[str]) -> list[dict[str, Any]]:
    """Return a row of the table for each kind of text."""
    ask_often(url, 3, 0)
    rows = []
    for kind in kinds:
        before = asyncio.run(settled_vitals(url))
        alone_s = ask_often(url, count, 0)
        loop_lag_s(url)
        with attacked(url, kind):
            beside_s = ask_often(url, count, 0)
            lag_s = loop_lag_s(url)
        time.sleep(2 * longest_wait_s(STALL_S))
        after = asyncio.run(settled_vitals(url))
        alone, beside = float(np.median(alone_s)), float(np.median(beside_s))
        rows.append({
            "attack": kind,
            "alone, ms": 1000 * alone,
            "beside, ms": 1000 * beside,
            "beside p95, ms": 1000 * float(np.percentile(beside_s, 95)),
            "ratio": beside / alone,
            "loop lag, ms": 1000 * lag_s,
            "memory left, MB": (after.rss_bytes - before.rss_bytes) / MB,
        })
    return rows


def main() -> int:
    """Run the command line."""
    parser = argument_parser(__doc__)
    parser.add_argument("--requests", type=int, default=15, help="of the stranger, a row")
    parser.add_argument("--kind", action="append", choices=ATTACKS, help="instead of all")
    parser.add_argument("--findings", action="store_true", help="instead of all: the nine of them")
    args, started = parser.parse_args(), machine()
    kinds = args.kind or list(FINDINGS if args.findings else ATTACKS)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    os.environ[WYOMING_PORT] = str(port)  # for the attackers' processes
    with served(stall_timeout_s=STALL_S, wyoming_port=port) as url:
        rows = measure(url, args.requests, kinds)
    targets = [
        target(f"{figure}: {row['attack']}", row[figure], "<=", bound)
        for figure, bound in BOUNDS.items()
        for row in rows
    ]
    return conclude(rows, targets, args.out, started)


if __name__ == "__main__":
    sys.exit(main())
