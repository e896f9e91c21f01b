"""Nobody takes everything, of rows, of the queue and of any places; texts are read by turns."""

import asyncio
from contextlib import ExitStack
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from app.engine.admission import Places, share
from app.engine.errors import EngineBusy, InvalidRequest
from app.engine.job import SpeechJob
from app.engine.serving.running import RunningJob
from app.engine.serving.scheduler import RowShares
from app.engine.serving.text_worker import TextCall, Turns
from samplers.knobs.params import SamplingParams
from tests.fakes import FakeBackend, fake_engine

SLOTS, KEPT = 20, 4


def waiting_job(client: str, rows: int = 1, priority: int = 0) -> RunningJob:
    """Return what the choice asks of a job, which needs an event loop."""
    return cast("RunningJob", SimpleNamespace(client=client, priority=priority, rows=rows))


def begun(
    waiting: list[RunningJob], running: list[RunningJob], slots: int = SLOTS
) -> list[RunningJob]:
    """Let in who may come in, one after the other; return them in that order."""
    shares, left, order = RowShares(slots), list(waiting), list[RunningJob]()
    while (one := shares.next(left, [*running, *order])) is not None:
        left.remove(one)
        order.append(one)
    return order


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_one_client_never_has_all_rows_and_another_begins_at_once(rows):
    many = [waiting_job("greedy", rows) for _ in range(SLOTS)]
    running = begun(many, [])
    assert sum(one.rows for one in running) == SLOTS - KEPT
    stranger = waiting_job("stranger", 2)
    assert begun([*many[len(running) :], stranger], running) == [stranger]


def test_jobs_of_many_rows_leave_the_last_ones_whoever_asks():
    running = begun([waiting_job("a", 8), waiting_job("b", 8), waiting_job("c", 8)], [])
    assert [one.client for one in running] == ["a", "b"]
    small = waiting_job("d", KEPT)
    assert begun([waiting_job("c", 8), small], running) == [small]


def test_rows_that_are_kept_delay_no_large_job():
    """While one waits, small ones get the kept rows and no more, so it begins when its own go."""
    small = [waiting_job(f"s{number}", 2) for number in range(8)]
    large, first = waiting_job("large", 16), waiting_job("first", 2)
    running = [first, *begun([large, *small], [first])]
    assert large in running
    held = [waiting_job("held", 8)]
    assert sum(one.rows for one in begun([large, *small], held)) == KEPT
    assert begun([large, *small[2:]], small[:2]) == [large]


def test_of_equal_clients_who_came_first_comes_first_and_nobody_overtakes():
    jobs = [waiting_job("", 2), waiting_job("", 4), waiting_job("", 1)]
    assert begun(jobs, [], 5) == jobs[:1]  # the second has no room, and the third waits behind it
    apart = [waiting_job("a", 2), waiting_job("b", 3), waiting_job("c", 1)]
    assert begun(apart, [], 4) == apart[:1]
    mixed = [waiting_job(name) for name in "abcab"]
    assert begun(mixed, [], 4) == mixed[:4]


def test_the_client_with_the_fewest_rows_comes_first_within_a_priority():
    busy, idle, urgent = waiting_job("busy"), waiting_job("idle"), waiting_job("busy", priority=-1)
    assert begun([busy, idle, urgent], [waiting_job("busy")]) == [urgent, idle, busy]


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


def job(name: str, text: str, client: str, **knobs: object) -> SpeechJob:
    params = SamplingParams.model_validate(knobs)
    return SpeechJob(id=name, text=text, params=params, client=client)


@pytest.mark.anyio
async def test_a_stranger_speaks_while_one_client_has_all_the_rows_and_places_that_it_may():
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


LONG = 4096


def text(client: str, length: int, name: str = "") -> TextCall:
    return TextCall("", client, length, lambda _: name or f"{client}{length}")


def filled(*texts: tuple[str, int]) -> Turns:
    turns = Turns()
    for client, length in texts:
        turns.add(text(client, length))
    return turns


def said(call: TextCall | None) -> str:
    assert call is not None
    return str(call.run(lambda: None))


def taken(turns: Turns, during: TextCall | None = None) -> list[str]:
    return [said(call) for call in iter(lambda: turns.next(during), None)]


def test_one_clients_shortest_text_comes_first_and_of_equals_the_oldest() -> None:
    turns = Turns()
    for item in ("three", "of", "by", "a"):
        turns.add(text("", len(item), item))
    assert taken(turns) == ["a", "of", "by", "three"]


@pytest.mark.parametrize("length", [1, 12, LONG])
def test_a_stranger_waits_for_one_text_of_another_client_however_many_and_short_those_are(
    length: int,
) -> None:
    """The attacker asks again before each answer, so that it always has texts that wait."""
    turns = filled(*[("attacker", length)] * 9)
    for number in range(50):
        assert turns.next() is not None
        turns.add(text("attacker", length, f"again {number}"))
    turns.add(text("stranger", 12, "Hello there."))
    assert "Hello there." in (said(turns.next()), said(turns.next()))


def test_who_asks_for_nothing_for_long_saves_nothing_up() -> None:
    """Somebody who comes after 100 texts of another does not get as many before the next one."""
    turns = filled(*[("busy", 100)] * 100)
    for _ in range(90):
        turns.next()
    for _ in range(10):
        turns.add(text("new", 100, "new100"))
    assert taken(turns)[:4] in (
        ["new100", "busy100", "new100", "busy100"],
        ["busy100", "new100", "busy100", "new100"],
    )


def test_while_a_text_is_read_only_what_comes_before_its_rest_is_next() -> None:
    turns = filled(("attacker", LONG))
    during = turns.next()
    assert during is not None
    turns.add(text("attacker", LONG, "as long"))
    turns.add(text("attacker", 9, "shorter"))
    turns.add(text("stranger", 12, "Hello there."))
    turns.add(text("stranger", LONG - 13, "the stranger's book"))
    turns.add(text("stranger", 14, "more than its share"))
    during_it = ["Hello there.", "more than its share", "the stranger's book", "shorter"]
    assert taken(turns, during) == during_it
    assert taken(turns) == ["as long"]


def test_characters_read_are_shared_equally_by_all_that_wait() -> None:
    random = Random(7)
    turns, read = Turns(), dict.fromkeys("abc", 0)
    for client in read:
        for _ in range(2000):
            length = random.randint(1, 50) if client == "a" else random.randint(1, LONG)
            turns.add(text(client, length))
    for _ in range(1500):
        turn = turns.next()
        assert turn is not None
        read[turn.client] += turn.length
    assert max(read.values()) - min(read.values()) <= LONG


def test_nothing_is_remembered_of_clients_who_left() -> None:
    turns = Turns()
    for number in range(1000):
        turns.add(text(f"client {number}", 5))
        assert turns.next() is not None
    assert len(turns._tags) <= 2


def test_what_is_cleared_comes_no_more_and_nobody_waits_for_it() -> None:
    turns, call = Turns(), text("a", 1)
    turns.add(call)
    turns.clear()
    assert turns.next() is None
    assert call.done.cancelled()
