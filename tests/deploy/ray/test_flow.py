"""Bytes under way to a client are bounded, whatever lies between proxy and replica."""

import asyncio
from typing import Any

import pytest

from deploy.ray.flow import ASKED, WINDOW_BYTES, BoundedSend, CountedSend

pytestmark = pytest.mark.anyio

PART = b"x" * 10_000
LIMIT = WINDOW_BYTES + 2 * len(PART)


class Ray:
    """What Ray does between its proxy and a replica: it passes messages on, and keeps all.

    The client takes a part when `read` is called.
    """

    def __init__(self, app, kind: str = "http", *, middlewares=(CountedSend, BoundedSend)) -> None:
        outer, inner = middlewares
        self._replica = inner(app)
        self._proxy = outer(self._ray)
        self.from_client: asyncio.Queue[Any] = asyncio.Queue()
        self.to_client: list[Any] = []
        self.kept: asyncio.Queue[Any] = asyncio.Queue()
        self._reads = asyncio.Semaphore(0)
        self.scope = {"type": kind, "headers": [(b"host", b"here")]}
        self.task = asyncio.create_task(self._proxy(self.scope, self.from_client.get, self._send))

    def read(self, parts: int = 1) -> None:
        for _ in range(parts):
            self._reads.release()

    @property
    def received(self) -> int:
        return sum(len(one.get("body", one.get("bytes", b""))) for one in self.to_client)

    async def _send(self, message) -> None:
        if message["type"] in {"http.response.body", "websocket.send"}:
            await self._reads.acquire()
        self.to_client.append(message)

    async def _ray(self, scope, receive, send) -> None:
        received: asyncio.Queue[Any] = asyncio.Queue()

        async def pump() -> None:
            message = await receive()
            while message["type"] != "http.disconnect":  # which comes again as often as one asks
                await received.put(message)
                message = await receive()
            await received.put(message)

        async def deliver() -> None:
            while True:
                await send(await self.kept.get())
                self.kept.task_done()

        tasks = [asyncio.create_task(pump()), asyncio.create_task(deliver())]
        try:
            await self._replica(scope, received.get, self.kept.put)
            await self.kept.join()
        finally:
            for task in tasks:
                task.cancel()


class Speaker:
    """An application that sends parts as fast as it may."""

    def __init__(self, parts: int = 100, kind: str = "http") -> None:
        self._parts, self._kind = parts, kind
        self.sent = 0
        self.scope: dict[str, Any] = {}
        self.heard: list[Any] = []

    async def __call__(self, scope, receive, send) -> None:
        self.scope = scope
        listening = asyncio.create_task(self._listen(receive))
        try:
            if self._kind == "http":
                await send({"type": "http.response.start", "status": 200, "headers": []})
            else:
                await send({"type": "websocket.accept", "headers": []})
            for _ in range(self._parts):
                if self._kind == "http":
                    await send({"type": "http.response.body", "body": PART, "more_body": True})
                else:
                    await send({"type": "websocket.send", "bytes": PART})
                self.sent += len(PART)
        finally:
            listening.cancel()

    async def _listen(self, receive) -> None:
        while not self.heard or self.heard[-1]["type"] != "http.disconnect":
            self.heard.append(await receive())


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_a_client_that_reads_nothing_pauses_the_replica(kind) -> None:
    speaker = Speaker(kind=kind)
    ray = Ray(speaker, kind)
    await settle()
    assert 0 < speaker.sent <= LIMIT
    for _ in range(80):
        ray.read()
        await settle()
        assert speaker.sent - ray.received <= LIMIT
    ray.read(100)
    await ray.task
    assert ray.received == speaker.sent == 100 * len(PART)


async def test_a_client_that_reads_gets_everything_in_order() -> None:
    ray = Ray(Speaker())
    ray.read(1000)
    await ray.task
    assert ray.received == 100 * len(PART)
    assert ray.to_client[0]["type"] == "http.response.start"


async def test_the_application_hears_the_client_and_no_counts() -> None:
    speaker = Speaker()
    ray = Ray(speaker)
    ray.read(40)
    await settle()
    await ray.from_client.put({"type": "http.request", "body": b"text"})
    await settle()
    assert speaker.sent > LIMIT, "no count arrived"
    assert [one["type"] for one in speaker.heard] == ["http.request"]
    ray.read(1000)
    await ray.task


async def test_a_client_that_leaves_releases_what_waits() -> None:
    speaker = Speaker()
    ray = Ray(speaker)
    await settle()
    assert speaker.sent < 100 * len(PART)
    await ray.from_client.put({"type": "http.disconnect"})
    await settle()
    assert speaker.sent == 100 * len(PART)
    ray.task.cancel()


async def test_without_a_proxy_that_counts_nothing_waits() -> None:
    class Nothing:
        def __init__(self, app) -> None:
            self._app = app

        async def __call__(self, *args) -> None:
            await self._app(*args)

    speaker = Speaker()
    ray = Ray(speaker, middlewares=(Nothing, BoundedSend))
    await settle()
    assert speaker.sent == 100 * len(PART)
    ray.task.cancel()


async def test_a_client_cannot_ask_for_counts_itself() -> None:
    speaker = Speaker(1)
    ray = Ray(speaker)
    ray.read(1)
    await ray.task
    assert [value for name, value in speaker.scope["headers"] if name == ASKED] == [b"1"]
