"""Nobody takes everything: what one asker may have of the rows, of the queue and of any places."""

import asyncio
from contextlib import ExitStack
from types import SimpleNamespace
from typing import cast

import pytest

from app.engine.errors import EngineBusy, InvalidRequest
from app.engine.interface import Plan
from app.engine.job import SpeechJob
from app.engine.serving.shares import Places, RowShares, rows_of, share
from app.engine.serving.ticket import Ticket
from samplers.knobs.params import SamplingParams
from tests.fakes import FakeBackend, fake_engine

SLOTS, KEPT = 20, 4


def ticket(asker: str, rows: int = 1, priority: int = 0) -> Ticket:
    """Return what the choice asks of a ticket, which needs an event loop."""
    plan = Plan(cast("SpeechJob", None), SamplingParams(), 1, None, "en", (), 0.0, rows)  # type: ignore[arg-type]
    return cast("Ticket", SimpleNamespace(asker=asker, priority=priority, work=plan))


def begun(waiting: list[Ticket], running: list[Ticket], slots: int = SLOTS) -> list[Ticket]:
    """Let in who may come in, one after the other; return them in that order."""
    shares, left, order = RowShares(slots), list(waiting), list[Ticket]()
    while (one := shares.next(left, [*running, *order])) is not None:
        left.remove(one)
        order.append(one)
    return order


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_one_asker_never_has_all_rows_and_another_begins_at_once(rows):
    many = [ticket("greedy", rows) for _ in range(SLOTS)]
    running = begun(many, [])
    assert sum(map(rows_of, running)) == SLOTS - KEPT
    stranger = ticket("stranger", 2)
    assert begun([*many[len(running) :], stranger], running) == [stranger]


def test_jobs_of_many_rows_leave_the_last_ones_whoever_asks():
    running = begun([ticket("a", 8), ticket("b", 8), ticket("c", 8)], [])
    assert [one.asker for one in running] == ["a", "b"]
    small = ticket("d", KEPT)
    assert begun([ticket("c", 8), small], running) == [small]


def test_rows_that_are_kept_delay_no_large_job():
    """While one waits, small ones get the kept rows and no more, so it begins when its own go."""
    small = [ticket(f"s{number}", 2) for number in range(8)]
    large, first = ticket("large", 16), ticket("first", 2)
    running = [first, *begun([large, *small], [first])]
    assert large in running
    held = [ticket("held", 8)]
    assert sum(map(rows_of, begun([large, *small], held))) == KEPT
    assert begun([large, *small[2:]], small[:2]) == [large]


def test_of_equal_askers_who_came_first_comes_first_and_nobody_overtakes():
    jobs = [ticket("", 2), ticket("", 4), ticket("", 1)]
    assert begun(jobs, [], 5) == jobs[:1]  # the second has no room, and the third waits behind it
    apart = [ticket("a", 2), ticket("b", 3), ticket("c", 1)]
    assert begun(apart, [], 4) == apart[:1]
    mixed = [ticket(name) for name in "abcab"]
    assert begun(mixed, [], 4) == mixed[:4]


def test_the_asker_with_the_fewest_rows_comes_first_within_a_priority():
    busy, idle, urgent = ticket("busy"), ticket("idle"), ticket("busy", priority=-1)
    assert begun([busy, idle, urgent], [ticket("busy")]) == [urgent, idle, busy]


def test_a_share_of_places_is_held_and_given_back():
    places = Places(5)
    with ExitStack() as held:
        for _ in range(share(5)):
            assert places.free("greedy")
            held.enter_context(places.held("greedy"))
        assert not places.free("greedy")
        assert places.free("stranger")
        with places.held("stranger"):
            assert not places.free("another")
        assert places.taken == share(5)
    assert places.taken == 0
    assert places.free("greedy")


def job(name: str, text: str, asker: str, **knobs: object) -> SpeechJob:
    params = SamplingParams.model_validate(knobs)
    return SpeechJob(id=name, text=text, params=params, asker=asker)


@pytest.mark.anyio
async def test_a_stranger_speaks_while_one_asker_has_all_the_rows_and_places_that_it_may():
    backend = FakeBackend()
    async with fake_engine(backend, slots=10, max_queue=10) as engine:
        await engine.wait_ready()
        greedy = [engine.submit(job(str(n), "wait for me", "greedy", best_of=8)) for n in range(8)]
        while not backend.began.is_set():
            await asyncio.sleep(0.01)
        while len(engine._queue) < share(10) + engine._queue.free_rows:
            greedy.append(engine.submit(job(str(len(greedy)), "wait", "greedy")))
        with pytest.raises(EngineBusy, match="of yours"):
            engine.submit(job("one more", "wait", "greedy"))
        stranger = engine.submit(job("stranger", "Hello there.", "stranger"))
        chunks = [chunk async for chunk in stranger]
        assert chunks[-1].result is not None
        assert chunks[-1].result.job_id == "stranger"
        for stream in greedy:
            await stream.aclose()


@pytest.mark.anyio
async def test_no_job_may_take_the_rows_that_are_kept():
    async with fake_engine(slots=8) as engine:
        await engine.wait_ready()
        with pytest.raises(InvalidRequest, match="8 rows of the batch, and one may have 7 of 8"):
            await anext(engine.submit(job("a", "Hi.", "", best_of=8)))
