"""Steps take turns between clients, and what nobody wants any more is not begun."""

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial

import pytest

from app.audio.render_pool import RenderPool

pytestmark = pytest.mark.anyio


@pytest.fixture
async def render_pool() -> AsyncIterator[RenderPool]:
    made = RenderPool(threads=1)
    yield made
    made.close()


class Busy:
    """A step that takes the one thread until it is let go."""

    def __init__(self, render_pool: RenderPool) -> None:
        self._go_on, self._began = threading.Event(), threading.Event()
        self.step = asyncio.create_task(render_pool.run("busy", self._work))

    def _work(self) -> None:
        self._began.set()
        assert self._go_on.wait(20)

    async def began(self) -> None:
        assert await asyncio.to_thread(self._began.wait, 20)

    async def end(self) -> None:
        self._go_on.set()
        await self.step


async def test_a_step_gives_what_it_gives_or_raises(render_pool: RenderPool) -> None:
    assert await render_pool.run("a", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await render_pool.run("a", lambda: 1 // 0)
    assert await render_pool.run("a", lambda: 8) == 8


async def test_a_stranger_waits_for_one_step_of_each_other(render_pool: RenderPool) -> None:
    busy, done = Busy(render_pool), list[str]()
    await busy.began()
    steps = [
        asyncio.create_task(render_pool.run(who, partial(done.append, f"{who}{number}")))
        for who, number in [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1)]
    ]
    await asyncio.sleep(0)
    await busy.end()
    await asyncio.gather(*steps)
    assert done == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_what_was_cancelled_is_not_begun(render_pool: RenderPool) -> None:
    busy, done = Busy(render_pool), list[int]()
    await busy.began()
    left = [asyncio.create_task(render_pool.run("a", partial(done.append, n))) for n in range(3)]
    await asyncio.sleep(0)
    left[1].cancel()
    await busy.end()
    await asyncio.gather(*left, return_exceptions=True)
    assert done == [0, 2]


@pytest.mark.parametrize(("cores", "at_once"), [(None, 1), (3, 3), (64, 4)])
async def test_as_many_steps_run_at_once_as_there_are_cores_but_at_most_four(
    cores: int | None, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    pool, go_on, begun = RenderPool(), threading.Event(), list[int]()

    def work(number: int) -> bool:
        begun.append(number)
        return go_on.wait(20)

    steps = [asyncio.create_task(pool.run(str(n), partial(work, n))) for n in range(6)]
    while len(begun) < at_once:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert len(begun) == at_once
    go_on.set()
    assert all(await asyncio.gather(*steps))
    pool.close()
