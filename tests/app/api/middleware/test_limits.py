import asyncio
import time

import pytest
from starlette.requests import HTTPConnection

from app.api.errors import TooManyRequests
from app.api.middleware.access.clients import client_of
from app.api.middleware.limits import CUTS_A_SECOND, MOST_CUTS, Admission
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


@pytest.mark.parametrize(
    ("host", "owner", "counted"),
    [
        ("10.0.0.7", "", "10.0.0.7"),
        ("10.0.0.7", "alice", "alice"),
        ("::ffff:10.0.0.7", "", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "", "fe80::/64"),
        ("testclient", "", "testclient"),
        (None, "", ""),  # a UNIX socket
    ],
)
async def test_one_client_is_an_owner_an_address_or_the_network_that_it_was_given(
    host, owner, counted
) -> None:
    scope = {"type": "http", "client": host and (host, 1), "state": {"owner": owner}}
    assert client_of(HTTPConnection(scope)) == counted


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


async def test_a_client_that_leaves_what_it_begins_again_and_again_waits_and_no_other(
    monkeypatch,
) -> None:
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    admission = Admission()
    for _ in range(round(MOST_CUTS)):
        with await admission.work("storm"):
            admission.cut("storm")
    admission.cut("storm")
    with pytest.raises(TooManyRequests) as refused:
        await admission.work("storm")
    with await admission.work("stranger"):
        pass
    now_s += refused.value.retry_after_s
    began = 0
    for _ in range(1000):  # a second of a storm
        now_s += 0.001
        try:
            with await admission.work("storm"):
                began += 1
                admission.cut("storm")
        except TooManyRequests:
            pass
    assert began <= 2 * CUTS_A_SECOND + 1


async def test_who_leaves_now_and_then_is_never_refused(monkeypatch) -> None:
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    admission = Admission()
    for _ in range(2000):
        now_s += 1 / CUTS_A_SECOND
        with await admission.work("barges in"):
            admission.cut("barges in")
