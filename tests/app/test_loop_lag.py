"""Nothing on the event loop takes long, whatever is sent; and the watchdog that says so barks.

`python -m tests.app.test_loop_lag` tells what each attack costs, and how long others waited.
"""

import asyncio
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from app.main import create_app
from app.settings import Settings
from lab.benchmarks.harness.loop_lag import MOST_S, Watchdog, watched
from tests.app.tools.hostile import ATTACKS
from tests.app.tools.serving import connected, served
from tests.toy.make_toy import make

PINGS_BYTES = 40_000_000


class Attacked(NamedTuple):
    client: httpx.Client
    watchdog: Watchdog


@pytest.fixture(scope="module")
def attacked(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    voices = str(tmp_path_factory.mktemp("voices"))
    with watched() as watchdog:
        settings = Settings(model=str(toy), device="cpu", voices=voices, text_process=True)
        with served(create_app(settings)) as client:
            yield Attacked(client, watchdog)


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_input_holds_up_the_event_loop(attacked: Attacked, attack: str) -> None:
    attacked.watchdog.forget()
    ATTACKS[attack](attacked.client)
    assert attacked.client.get("/health").status_code == 200
    assert attacked.watchdog.most_s < MOST_S, attacked.watchdog.worst[0]


def test_the_watchdog_sees_what_holds_up_a_loop() -> None:
    def busy() -> None:
        ends_s = time.thread_time() + 2 * MOST_S
        while time.thread_time() < ends_s:
            pass

    async def life() -> None:
        asyncio.get_running_loop().call_soon(busy)
        await asyncio.sleep(0.01)

    with watched() as watchdog:
        thread = threading.Thread(target=lambda: asyncio.run(life()))
        thread.start()
        thread.join()
    assert watchdog.most_s > MOST_S
    assert "busy" in watchdog.worst[0].what


@pytest.mark.slow
def test_a_client_that_reads_no_pongs_is_read_no_more(attacked: Attacked) -> None:
    """Its pings wait in its own system, and then in its own program."""
    with connected(attacked.client) as connection:
        connection.sendall(
            b"GET /v1/audio/speech/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert connection.recv(12) == b"HTTP/1.1 101"
        connection.settimeout(2)
        pings = (b"\x89\xfd" + bytes(4) + b"p" * 125) * 100
        sent = sent_until_stalled(connection, pings)
        assert sent < PINGS_BYTES
        connection.settimeout(20)
        answered = 0
        while answered < sent // 2:  # once it reads, it is answered
            answered += len(connection.recv(1 << 20))
    assert attacked.client.get("/health").status_code == 200


def sent_until_stalled(connection: socket.socket, some: bytes) -> int:
    """Send again and again until nothing is taken any more, or enough; return how many bytes."""
    sent = 0
    with suppress(TimeoutError):
        while sent < PINGS_BYTES:
            sent += connection.send(some)
    return sent


def main() -> None:
    """Tell what each attack costs the loop, and the longest wait of a request beside it."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        settings = Settings(
            model=str(make(Path(folder) / "toy")), device="cpu", voices=folder, text_process=True
        )
        watchdog = stack.enter_context(watched())
        client = stack.enter_context(served(create_app(settings)))
        other = stack.enter_context(httpx.Client(base_url=client.base_url))
        sys.stdout.write("| attack | most of one callback, ms | longest /health beside it, ms |\n")
        for name, attack in ATTACKS.items():
            watchdog.forget()
            waits, over = [0.0], threading.Event()

            def probe(waits: list[float], over: threading.Event) -> None:
                while not over.is_set():
                    began_s = time.perf_counter()
                    other.get("/health")
                    waits.append(time.perf_counter() - began_s)

            prober = threading.Thread(target=probe, args=(waits, over))
            prober.start()
            attack(client)
            over.set()
            prober.join()
            worst = 1000 * watchdog.most_s
            sys.stdout.write(f"| {name} | {worst:.1f} | {1000 * max(waits):.1f} |\n")


if __name__ == "__main__":
    main()
