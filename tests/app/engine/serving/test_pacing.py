"""One thing of a client at a time, and a rest after what is refused."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from app.engine.serving.pacing import LEAST_REST_S, MOST_REST_S, REST, ClientPacer


class Clock:
    """Passes while something sleeps, and when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)


async def taken(pacer: ClientPacer, clock: Clock, client: str, took_s: float, ends: str) -> float:
    """Do something that takes some seconds and ends well or not; return when it began."""
    try:
        async with pacer.turn(client):
            began_s = clock.now_s
            clock.now_s += took_s
            if ends == "refused":
                raise ValueError
            if ends == "left":
                raise asyncio.CancelledError
    except (ValueError, asyncio.CancelledError):
        pass
    return began_s


Scene = Callable[[ClientPacer, Clock], Coroutine[Any, Any, None]]


def played(scene: Scene) -> None:
    clock = Clock()
    asyncio.run(scene(ClientPacer(clock, clock.sleep), clock))


@pytest.mark.parametrize("ends", ["refused", "left"])
@pytest.mark.parametrize(
    ("took_s", "rest_s"),
    [(0.0, LEAST_REST_S), (0.01, LEAST_REST_S), (1.0, REST), (60.0, MOST_REST_S)],
)
def test_after_what_came_to_nothing_a_client_rests(ends: str, took_s: float, rest_s: float) -> None:
    async def scene(pacer: ClientPacer, clock: Clock) -> None:
        await taken(pacer, clock, "a", took_s, ends)
        assert await taken(pacer, clock, "b", 0.0, "well") == took_s  # nobody else does
        assert await taken(pacer, clock, "a", 0.0, "well") == pytest.approx(took_s + rest_s)

    played(scene)


def test_after_what_was_done_nobody_rests() -> None:
    async def scene(pacer: ClientPacer, clock: Clock) -> None:
        for number in range(5):
            assert await taken(pacer, clock, "a", 1.0, "well") == number

    played(scene)


def test_small_files_that_are_refused_at_once_are_read_four_times_a_second() -> None:
    async def scene(pacer: ClientPacer, clock: Clock) -> None:
        await asyncio.gather(*(taken(pacer, clock, "a", 0.0, "refused") for _ in range(200)))
        assert clock.now_s == pytest.approx(199 * LEAST_REST_S)

    played(scene)


def test_a_client_has_one_thing_done_at_a_time_and_others_beside_it() -> None:
    async def scene(pacer: ClientPacer, clock: Clock) -> None:
        working: list[str] = []

        async def work(client: str) -> int:
            async with pacer.turn(client):
                working.append(client)
                await asyncio.sleep(0)
                most = working.count(client)
                working.remove(client)
            return most

        assert set(await asyncio.gather(*(work(one) for one in "aaabbc"))) == {1}
        assert clock.now_s == 0.0

    played(scene)


def test_clients_that_have_rested_are_forgotten_and_those_that_rest_are_not() -> None:
    async def scene(pacer: ClientPacer, clock: Clock) -> None:
        await taken(pacer, clock, "hostile", 60.0, "refused")
        for number in range(5000):
            await taken(pacer, clock, str(number), 0.0, "well")
        began_s = await taken(pacer, clock, "hostile", 0.0, "well")
        assert began_s == pytest.approx(60.0 + MOST_REST_S)

    played(scene)
