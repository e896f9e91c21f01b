import asyncio
import subprocess
import sys
import time

import pytest
from prometheus_client import CollectorRegistry

from app.storage.shared_state import SharedState, StateAway

pytestmark = pytest.mark.anyio


def state_of(server, *, closed: bool = False) -> SharedState:
    return SharedState(server.url, closed_if_away=closed, registry=CollectorRegistry())


async def until(condition) -> float:
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() < began_s + 20, "it never came true"
        await asyncio.sleep(0.01)
    return time.monotonic() - began_s


async def test_a_redis_that_was_killed_is_used_again_within_two_seconds(redis_server, caplog):
    state = state_of(redis_server)
    returned = []
    state.on_return.append(lambda: returned.append(True))
    await state.start()
    assert await state.run(state.redis.set, "a", 1)
    redis_server.kill()
    with pytest.raises(StateAway):
        await state.run(state.redis.get, "a")
    assert state.summary == "redis away, limits open"
    redis_server.start()
    assert await until(lambda: state.available) < 2
    assert returned == [True]
    assert await state.run(state.redis.get, "a") is None
    assert state.summary == "redis"
    lost, back = [one.message for one in caplog.records if "Redis" in one.message]
    assert "does not answer" in lost
    assert "answers again" in back
    await state.stop()


async def test_a_redis_that_hangs_delays_one_command_and_not_all(redis_server):
    state = state_of(redis_server, closed=True)
    await state.start()
    redis_server.hang()
    with pytest.raises(StateAway):
        await state.run(state.redis.get, "a")
    began_s = time.monotonic()
    for _ in range(1000):
        with pytest.raises(StateAway):
            await state.run(state.redis.get, "a")
    assert time.monotonic() - began_s < 0.4, "each waited for an answer"
    assert state.summary == "redis away, limits closed"
    await state.stop()


async def test_metrics_tell_whether_it_answers(redis_server):
    registry = CollectorRegistry()
    state = SharedState(redis_server.url, closed_if_away=False, registry=registry)
    await state.start()
    assert registry.get_sample_value("tts_state_up") == 1
    redis_server.kill()
    with pytest.raises(StateAway):
        await state.run(state.redis.get, "a")
    assert registry.get_sample_value("tts_state_up") == 0
    assert registry.get_sample_value("tts_state_failures_total") == 1
    await state.stop()


async def test_a_process_starts_without_redis_and_uses_it_once_it_is_there(redis_server):
    redis_server.kill()
    state = state_of(redis_server)
    await state.start()
    assert not state.available
    redis_server.start()
    await until(lambda: state.available)
    await state.stop()


@pytest.mark.slow
def test_a_service_whose_state_and_voices_are_its_own_loads_no_redis_and_no_fsspec():
    unwanted = {"redis", "ray", "fsspec", "app.storage.shared_state"}
    code = f"import sys, app.main; assert not {unwanted} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
