import asyncio
from collections import Counter
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import Any

import pytest

from app.api.errors import StateUnavailable, TooManyRequests
from app.api.middleware.shared_limits import SharedAdmission
from app.storage.shared_state import SharedState
from tests.app.tools.redis_server import RedisServer, processes

pytestmark = pytest.mark.anyio


def replicas(
    server: RedisServer, number: int, *, closed: bool = False, **limits: Any
) -> AbstractAsyncContextManager[list[SharedAdmission]]:
    """Give several admissions over one Redis, as several processes have them."""

    def admission(state: SharedState) -> SharedAdmission:
        return SharedAdmission(state, server.url, **limits)

    return processes(server, number, admission, closed=closed)


async def test_three_at_once_hold_exactly_over_four_replicas(redis_server) -> None:
    at_work, most = 0, 0

    async def ask(admission: SharedAdmission) -> str:
        nonlocal at_work, most
        try:
            with await admission.work("alice"):
                at_work += 1
                most = max(most, at_work)
                await asyncio.sleep(0.02)
                at_work -= 1
        except TooManyRequests:
            return "refused"
        return "admitted"

    async with replicas(redis_server, 4, max_concurrent=3) as every:
        asked = [ask(every[number % 4]) for number in range(1000)]
        ended = Counter(await asyncio.gather(*asked))
        assert most == 3
        assert ended["refused"] > 0
        assert ended["admitted"] >= 3
        with ExitStack() as work:  # all leases were given back
            for number in range(3):
                work.enter_context(await every[number].work("alice"))
            with pytest.raises(TooManyRequests):
                await every[3].work("alice")


@pytest.mark.slow
async def test_work_is_counted_as_long_as_it_lasts(redis_server) -> None:
    async with replicas(redis_server, 2, max_concurrent=1, lease_s=0.3) as (here, there):
        with await here.work("alice"):
            for _ in range(10):
                with pytest.raises(TooManyRequests):
                    await there.work("alice")
                await asyncio.sleep(0.1)
        while redis_server.client.zcard("valle:1:work:alice"):
            await asyncio.sleep(0.01)
        with await there.work("alice"):
            pass


async def test_the_work_of_a_replica_that_died_lapses(redis_server) -> None:
    stops = []

    def admission(state: SharedState) -> SharedAdmission:
        stops.append(state.stop)
        return SharedAdmission(state, redis_server.url, max_concurrent=1, lease_s=0.3)

    async with processes(redis_server, 2, admission) as (dead, living):
        with ExitStack() as never_released:
            never_released.enter_context(await dead.work("alice"))
            await stops[0]()
            with pytest.raises(TooManyRequests):
                await living.work("alice")
            await asyncio.sleep(0.5)
            with await living.work("alice"):
                pass


@pytest.mark.slow
async def test_leases_that_a_restart_of_redis_lost_are_there_again(redis_server) -> None:
    async with replicas(redis_server, 2, max_concurrent=1) as (here, there):
        with await here.work("alice"):
            redis_server.kill()
            with await there.work("alice"):
                pass  # open: each counts alone
            redis_server.start()
            while redis_server.client.zcard("valle:1:work:alice") != 1:
                await asyncio.sleep(0.01)
            with pytest.raises(TooManyRequests):
                await there.work("alice")


async def test_without_redis_each_replica_counts_alone_if_limits_are_open(redis_server) -> None:
    async with replicas(redis_server, 2, rate_per_minute=2, max_concurrent=1) as every:
        redis_server.kill()
        for one in every:
            await one.count("alice")
            await one.count("alice")
            with pytest.raises(TooManyRequests):
                await one.count("alice")
            with await one.work("alice"), pytest.raises(TooManyRequests):
                await one.work("alice")


async def test_without_redis_what_is_limited_is_refused_if_limits_are_closed(redis_server) -> None:
    limits = {"rate_per_minute": 2, "max_concurrent": 1}
    async with replicas(redis_server, 1, closed=True, **limits) as (one,):
        redis_server.kill()
        with pytest.raises(StateUnavailable):
            await one.count("alice")
        with pytest.raises(StateUnavailable):
            await one.work("alice")
    async with replicas(redis_server, 1, closed=True) as (unlimited,):
        await unlimited.count("alice")
        with await unlimited.work("alice"):
            pass
