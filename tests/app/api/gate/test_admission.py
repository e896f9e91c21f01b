import asyncio
import time

import pytest

from app.api.errors import TooManyRequests
from app.api.gate.admission import Admission, network_of
from app.engine.errors import EngineNotReady

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("jump_s", [-3600, 3600])
async def test_a_clock_that_is_set_changes_no_rate_limit(jump_s, monkeypatch) -> None:
    admission = Admission(rate_per_minute=2)
    for _ in range(2):
        await admission.count("alice")
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + jump_s)
    with pytest.raises(TooManyRequests) as refused:
        await admission.count("alice")
    assert refused.value.retry_after_s <= 60
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 61)
    await admission.count("alice")


async def test_addresses_of_one_network_are_one_client() -> None:
    admission = Admission(rate_per_minute=2)
    for last in range(2):
        await admission.count(network_of(f"2001:db8:1:2::{last}"))
    with pytest.raises(TooManyRequests):
        await admission.count(network_of("2001:db8:1:2:ffff::9"))
    await admission.count(network_of("2001:db8:1:3::1"))


async def test_work_that_breaks_is_over() -> None:
    admission = Admission(max_concurrent=1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), await admission.work("alice"):
            raise ZeroDivisionError
    assert admission.working == 0


async def test_closing_waits_for_work_and_lets_none_begin() -> None:
    admission = Admission()
    with await admission.work("alice"):
        closing = asyncio.create_task(admission.close(60))
        await asyncio.sleep(0.1)
        assert not closing.done()
        with pytest.raises(EngineNotReady, match="shutting down"):
            await admission.work("bob")
        with pytest.raises(EngineNotReady):
            admission.check_open()
    await closing


async def test_closing_does_not_wait_for_ever() -> None:
    admission = Admission()
    with await admission.work("alice"):
        await admission.close(0.05)
        assert admission.working == 1
