"""Texts are read in turn; what cannot be spoken is refused before any worker sees it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from app.engine.admission.cost_model import CostModel
from app.engine.admission.text_pace import TextPace
from app.engine.core import Plan, SpeechJob, SpeechPart
from app.engine.errors import GenerationFailed, InvalidRequest, SpeechError
from app.engine.serving.fair_queue import FairQueue, FairTask
from app.engine.serving.job_queue import JobQueue
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.outcomes import JobLog
from app.engine.serving.running import JobHandle
from app.engine.serving.text_worker import TextWorker
from models.text import Utterance
from samplers.knobs.params import SamplingParams
from tests.app.engine.running import until
from tests.fakes import FakeBackend

pytestmark = pytest.mark.anyio

SLOTS = 4


TYPED = "The birch canoe slid on"


class Spelling(FakeBackend):
    """Reads a text as the symbols that it is written with."""

    def plan(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Plan:
        spelled = (Utterance(job.text, job.text),)
        return replace(super().plan(job, on_piece), utterances=spelled)


class Room:
    """A reader and what it reads for; no worker takes what is lined up."""

    def __init__(self) -> None:
        self.queue, self.outcomes = JobQueue(10), JobLog(EngineMetrics())
        self.backend = FakeBackend(block={"hard": "text"}, fail_at={"unreadable": "text"})
        self.reader = TextWorker(self.queue, self.outcomes, CostModel(), slots=SLOTS)

    def send(self, text: str, client: str = "", **knobs: object) -> JobHandle:
        job = JobHandle(text, 20.0, self.left, client=client)
        assert self.queue.admit(job)
        params = SamplingParams.model_validate(knobs)
        self.reader.read(self.backend, job, SpeechJob(text, text, params, client=client))
        return job

    def left(self, job: JobHandle) -> None:
        self.queue.remove(job)

    async def begun(self) -> None:
        """Wait until the first text takes the thread."""
        async with asyncio.timeout(20):
            while not self.backend.readers:
                await asyncio.sleep(0.005)

    async def lined_up(self) -> JobHandle:
        async with asyncio.timeout(20):
            while (job := self.queue.pop(lambda waiting: waiting[0])) is None:
                await asyncio.sleep(0.005)
        return job


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    room = Room()
    with closing(room.reader):
        yield room


async def refusal(job: JobHandle) -> SpeechError:
    item = await asyncio.wait_for(job.reader.chunks.get(), 20)
    assert isinstance(item, SpeechError)
    return item


async def test_jobs_line_up_as_they_came_and_know_what_to_speak(room: Room) -> None:
    sent = [room.send(text) for text in ("One.", "Two.", "Three.")]
    for job in sent:
        assert await room.lined_up() is job
        assert job.plan is not None
        assert job.plan.job.text == job.id
    assert len(room.backend.readers) == 1


async def test_a_short_text_is_read_between_two_pieces_of_a_long_one(room: Room) -> None:
    """A text that takes the thread lets whatever is shorter go first once a piece is read."""
    room.send("hard " * 9)
    room.send("A text that is longer than what is read. " * 2)
    room.send("Hello there.")
    room.backend.read_on.set()

    order = [(await room.lined_up()).id for _ in range(3)]

    assert order[0] == "Hello there."
    assert order[1] == "hard " * 9


async def test_a_longer_text_of_a_stranger_is_read_between_two_pieces_of_a_busy_clients(
    room: Room,
) -> None:
    room.send("hard " * 9, client="attacker")
    await room.begun()
    room.send("A text that is longer than what is read. " * 2, client="stranger")
    room.backend.read_on.set()
    assert (await room.lined_up()).id.startswith("A text")


async def test_texts_that_are_only_read_take_turns_with_jobs(room: Room) -> None:
    """In the thread all wait in one line, so that none of them is a way around the turns."""
    done: list[str] = []

    def note(name: str, future: Future[Any]) -> None:
        future.add_done_callback(lambda _: done.append(name))

    room.send("hard", client="attacker")
    await room.begun()
    for number in range(4):
        job = SpeechJob("id", "A text to be read only. ", SamplingParams(), client="attacker")
        last = room.reader.preview(room.backend, job)
        note(f"text {number}", last)
    strangers = SpeechJob("id", "Hello there.", SamplingParams(), client="stranger")
    note("stranger", room.reader.preview(room.backend, strangers))
    room.backend.read_on.set()
    await asyncio.wait_for(asyncio.wrap_future(last), 20)
    assert done.index("stranger") <= 1
    assert [one for one in done if one != "stranger"] == [f"text {n}" for n in range(4)]


async def test_who_waits_when_it_is_closed_is_told(room: Room) -> None:
    room.send("hard")
    await room.begun()
    waiting = room.reader.preview(room.backend, SpeechJob("id", "A text.", SamplingParams()))
    room.reader.close()
    room.backend.read_on.set()
    assert waiting.cancelled()


async def test_what_cannot_be_spoken_is_told_why_and_has_left(room: Room) -> None:
    empty, unreadable = room.send(" "), room.send("unreadable")
    crowd = room.send("Too many.", best_of=SLOTS + 1)
    assert isinstance(await refusal(empty), InvalidRequest)
    assert isinstance(await refusal(unreadable), GenerationFailed)
    error = await refusal(crowd)
    assert isinstance(error, InvalidRequest)
    assert (error.param, "one may have 4 of 4" in str(error)) == ("best_of", True)
    assert room.queue.empty


async def test_more_of_a_text_counts_also_where_text_comes_faster_than_it_is_read(
    room: Room,
) -> None:
    planned: list[str] = []
    asked = SpeechJob("id", "a", SamplingParams(), part=SpeechPart(is_open=True))
    job = JobHandle("id", 20.0, lambda one: planned.append(one.plan.job.text if one.plan else ""))
    assert room.queue.admit(job)
    room.reader.read(room.backend, job, asked)
    await room.lined_up()
    room.reader.read_more(room.backend, job, replace(asked, text="a hard b"))
    await until(lambda: room.reader.silent_s)
    for text in ("a hard b c", "a hard b c d"):
        room.reader.read_more(room.backend, job, replace(asked, text=text))
    room.backend.read_on.set()
    await until(lambda: job.plan is not None and job.plan.job.text == "a hard b c d")
    assert planned == ["a hard b", "a hard b c d"]  # of two that wait the newest is enough


async def test_an_older_beginning_takes_nothing_back(room: Room) -> None:
    """Between two pieces of it the whole text may have been planned."""
    asked = SpeechJob("id", "a", SamplingParams(), part=SpeechPart(is_open=True))
    job = JobHandle("id", 20.0, lambda _: None)
    assert room.queue.admit(job)
    room.reader.read(room.backend, job, asked)
    await room.lined_up()
    room.reader.read_more(room.backend, job, replace(asked, text="a hard b", client="other"))
    await until(lambda: room.reader.silent_s)
    whole = replace(asked, text="a hard b.", part=SpeechPart())
    room.reader.read_more(room.backend, job, whole)
    room.backend.read_on.set()
    await until(lambda: job.plan is not None and not job.plan.job.part.is_open)
    room.reader.close()
    await asyncio.sleep(0.05)
    assert job.plan is not None
    assert job.plan.job.text == "a hard b."


async def test_who_left_meanwhile_is_not_read(room: Room) -> None:
    room.send("hard")  # takes the thread until it may be read
    left = room.send("Left.")
    left.abandon("cancelled")
    room.backend.read_on.set()
    assert (await room.lined_up()).id == "hard"
    last = room.send("Last.")
    assert await room.lined_up() is last
    assert (left.plan, len(room.queue)) == (None, 0)


LONG = 4096


def waits(turns: FairQueue, client: str, length: int, name: str = "") -> None:
    turns.add(client, length, lambda _: name or f"{client}{length}")


def filled(*texts: tuple[str, int]) -> FairQueue:
    turns = FairQueue()
    for client, length in texts:
        waits(turns, client, length)
    return turns


def said(turn: FairTask | None) -> str:
    assert turn is not None
    return str(turn(lambda: None))


def done_next(turns: FairQueue) -> str:
    name = said(turns.begin())
    turns.end()
    return name


def taken(turns: FairQueue) -> list[str]:
    names = []
    while (turn := turns.begin()) is not None:
        names.append(said(turn))
        turns.end()
    return names


def test_one_clients_shortest_text_comes_first_and_of_equals_the_oldest() -> None:
    turns = FairQueue()
    for item in ("three", "of", "by", "a"):
        waits(turns, "", len(item), item)
    assert taken(turns) == ["a", "of", "by", "three"]


@pytest.mark.parametrize("length", [1, 12, LONG])
def test_a_stranger_waits_for_one_text_of_another_client_however_many_and_short_those_are(
    length: int,
) -> None:
    """The attacker asks again before each answer, so that it always has texts that wait."""
    turns = filled(*[("attacker", length)] * 9)
    for number in range(50):
        assert done_next(turns)
        waits(turns, "attacker", length, f"again {number}")
    waits(turns, "stranger", 12, "Hello there.")
    assert "Hello there." in (done_next(turns), done_next(turns))


def test_who_asks_for_nothing_for_long_saves_nothing_up() -> None:
    """Somebody who comes after 100 texts of another does not get as many before the next one."""
    turns = filled(*[("busy", 100)] * 100)
    for _ in range(90):
        done_next(turns)
    for _ in range(10):
        waits(turns, "new", 100)
    assert taken(turns)[:4] in (
        ["new100", "busy100", "new100", "busy100"],
        ["busy100", "new100", "busy100", "new100"],
    )


def test_while_a_text_is_read_only_what_comes_before_its_rest_is_next() -> None:
    turns = filled(("attacker", LONG))
    assert turns.begin() is not None
    waits(turns, "attacker", LONG, "as long")
    waits(turns, "attacker", 9, "shorter")
    waits(turns, "stranger", 12, "Hello there.")
    waits(turns, "stranger", LONG - 13, "the stranger's book")
    waits(turns, "stranger", 14, "more than its share")
    during_it = ["Hello there.", "more than its share", "the stranger's book", "shorter"]
    assert taken(turns) == during_it
    turns.end()
    assert taken(turns) == ["as long"]


def test_characters_read_are_shared_equally_by_all_that_wait() -> None:
    random = Random(7)
    turns, read = FairQueue(), Counter[str]()
    for client in "abc":
        for _ in range(2000):
            length = random.randint(1, 50) if client == "a" else random.randint(1, LONG)
            waits(turns, client, length, f"{client} {length}")
    for _ in range(1500):
        reader, characters = done_next(turns).split()
        read[reader] += int(characters)
    assert len(read) == 3
    assert max(read.values()) - min(read.values()) <= LONG


def test_nothing_is_remembered_of_clients_who_left() -> None:
    turns = FairQueue()
    for number in range(1000):
        waits(turns, f"client {number}", 5)
        assert done_next(turns)
    assert len(turns._tags) <= 2


def test_what_is_cleared_comes_no_more() -> None:
    turns = filled(("a", 1))
    turns.clear()
    assert turns.begin() is None


async def test_of_a_voice_that_has_not_spoken_too_little_rather_than_too_much_is_known() -> None:
    room = Room()
    with closing(room.reader):
        job = JobHandle("first", 20.0, room.left)
        job.pace = TextPace()
        assert room.queue.admit(job)
        asked = SpeechJob("first", TYPED, SamplingParams(), part=SpeechPart(is_open=True))
        room.reader.read(Spelling(), job, asked)
        await room.lined_up()
    quickest_s = 0.0427 * len(TYPED)  # the built-in voice that speaks most symbols a second
    assert job.known is not None
    assert job.known.speech_s < quickest_s
    assert job.known.char_s < quickest_s / len(TYPED)
