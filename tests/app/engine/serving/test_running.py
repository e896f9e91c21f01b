"""A job and a reader that is slower, or has left."""

import asyncio
from contextlib import aclosing

import pytest

from app.engine.core import SpeechJob
from app.engine.engine import SpeechEngine
from app.engine.serving.reader import MAX_UNREAD_S
from app.engine.serving.scheduler import MAX_WAITING_S
from samplers.knobs.params import SamplingParams
from tests.app.engine.running import running, until
from tests.fakes import FakeBackend

pytestmark = pytest.mark.anyio

CHUNK_S = 1.0
LONG = "a job of a chunk a letter, which is read slowly"
MOST_DRAWN = (MAX_UNREAD_S + MAX_WAITING_S) / CHUNK_S + 2


def job(text: str) -> SpeechJob:
    return SpeechJob(text, text, SamplingParams())


async def paused(backend: FakeBackend, engine: SpeechEngine, text: str) -> None:
    """Wait until the job pauses: unread audio is bounded, and so are frames sampled ahead."""
    await until(lambda: [one for one in engine._queue.running if one.paused])
    (ticket,) = engine._queue.running
    assert ticket.playback.audio_s == MAX_UNREAD_S + CHUNK_S
    assert backend.frames_made[text] <= MOST_DRAWN


async def test_a_job_that_is_not_read_pauses_and_resumes_as_it_is_read():
    backend = FakeBackend(CHUNK_S)
    async with running(backend) as (engine, _), aclosing(engine.submit(job(LONG))) as chunks:
        await paused(backend, engine, LONG)
        read = 0
        async for _ in chunks:
            read += 1
            assert backend.frames_made[LONG] <= read + MOST_DRAWN
        assert read == len(LONG) + 1
        assert engine.finished == {"stop": 1}


async def test_while_a_job_pauses_others_run():
    async with (
        running(FakeBackend(CHUNK_S), slots=4) as (engine, backend),
        aclosing(engine.submit(job(LONG))),
    ):
        await paused(backend, engine, LONG)
        async with aclosing(engine.submit(job("next"))) as others:
            assert len([chunk async for chunk in others]) == 5


async def test_leaving_a_paused_job_frees_the_worker():
    async with running(FakeBackend(CHUNK_S)) as (engine, backend):
        chunks = engine.submit(job(LONG))
        await paused(backend, engine, LONG)
        await chunks.aclose()
        await until(lambda: engine.finished == {"cancelled": 1})
        await until(lambda: engine.status.used_slots == 0)  # a step later
        assert backend.frames_made[LONG] <= MOST_DRAWN


@pytest.mark.slow
async def test_time_spent_waiting_for_the_reader_is_not_the_jobs():
    timeout_s = 1.5
    async with (
        running(FakeBackend(CHUNK_S), request_timeout_s=timeout_s) as (engine, backend),
        aclosing(engine.submit(job(LONG))) as chunks,
    ):
        await paused(backend, engine, LONG)
        await asyncio.sleep(timeout_s + 0.5)
        assert len([chunk async for chunk in chunks]) == len(LONG) + 1


async def test_the_last_chunk_is_sent_however_much_is_unread():
    backend = FakeBackend(CHUNK_S)
    text = "a" * round(MAX_UNREAD_S / CHUNK_S)
    async with running(backend) as (engine, _), aclosing(engine.submit(job(text))) as chunks:
        await until(lambda: engine.finished == {"stop": 1})
        assert len([chunk async for chunk in chunks]) == len(text) + 1


async def test_a_machine_slower_than_speech_holds_the_first_audio_until_the_rest_will_last():
    text = "wait: ten chunks"
    async with running(FakeBackend(CHUNK_S, block={"wait": "ar"})) as (engine, backend):
        for _ in range(200):
            engine._capacity.note_audio(2.0, 1.0)  # half a second of sound a second is made
            engine._capacity.note_spoken(len(text), len(text) * CHUNK_S)
        async with aclosing(engine.submit(job(text))) as chunks:
            await until(lambda: engine._queue.running)
            (ticket,) = engine._queue.running
            ticket.playback.expected_s = len(text) * CHUNK_S
            half = len(text) // 2
            backend.let(half - 2)
            await until(lambda: ticket.playback.audio_s >= (half - 2) * CHUNK_S)
            assert ticket.reader.chunks.empty()
            backend.let(3)
            assert len((await anext(chunks)).samples) > 0
            await until(lambda: ticket.reader.chunks.qsize() >= half - 2)
            backend.let(len(text))
            assert len([chunk async for chunk in chunks]) >= 2
