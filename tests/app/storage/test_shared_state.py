import asyncio
import time

import pytest
from prometheus_client import CollectorRegistry

from app.storage.shared_state import SharedState, StateAway, StateRefused, ask

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


@pytest.mark.slow
async def test_a_redis_that_hangs_delays_one_command_and_not_all(redis_server):
    registry = CollectorRegistry()
    state = SharedState(redis_server.url, closed_if_away=True, registry=registry)
    await state.start()
    redis_server.hang()
    for _ in range(1000):
        with pytest.raises(StateAway):
            await state.run(state.redis.get, "a")
    assert registry.get_sample_value("tts_state_failures_total") == 1, "others waited, too"
    assert state.summary == "redis away, limits closed"
    await state.stop()


async def test_what_redis_refuses_is_told_in_its_own_words(redis_server, caplog):
    redis_server.client.config_set("requirepass", "right")
    wrong = redis_server.url.replace("//", "//:wrong@")
    with pytest.raises(StateRefused, match="invalid username-password pair"):
        ask(wrong)
    with pytest.raises(StateRefused, match="DB index"):
        ask(redis_server.url.replace("//", "//:right@").replace("/0", "/99"))
    state = SharedState(wrong, closed_if_away=False, registry=CollectorRegistry())
    await state.start()
    assert "Redis refuses us: " in caplog.text
    assert "invalid username-password pair" in caplog.text
    await state.stop()
    redis_server.kill()
    with pytest.raises(StateAway):
        ask(redis_server.url)


async def test_a_key_of_another_type_is_told_and_no_outage(redis_server, caplog):
    state = state_of(redis_server, closed=True)
    await state.start()
    redis_server.client.set("text", "x")
    script = state.redis.register_script("return redis.call('ZCARD', KEYS[1])")
    for _ in range(2):
        with pytest.raises(StateRefused, match="WRONGTYPE"):
            await state.run(script, keys=["text"], args=[])
    assert await state.run(state.redis.get, "text") == b"x"
    assert state.summary == "redis"
    [told] = [one.message for one in caplog.records if "Redis" in one.message]
    assert "(text): WRONGTYPE" in told
    await state.stop()


async def test_a_process_starts_without_redis_and_uses_it_once_it_is_there(redis_server):
    redis_server.kill()
    state = state_of(redis_server)
    await state.start()
    assert not state.available
    redis_server.start()
    await until(lambda: state.available)
    await state.stop()
