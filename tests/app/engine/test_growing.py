"""A speech whose text is still being written, seen from the engine."""

import asyncio

import pytest

from app.engine.core import SpeechJob
from app.engine.engine import SpeechEngine
from app.engine.errors import EngineBusy, InvalidRequest
from app.engine.growing import GrowingSpeech
from samplers.knobs.params import SamplingParams
from tests.app.engine.running import running, until

pytestmark = pytest.mark.anyio

JOB = SpeechJob("speech", "", SamplingParams())


def growing(engine: SpeechEngine, busy_timeout_s: float = 20.0) -> GrowingSpeech:
    return GrowingSpeech(engine, JOB, max_text_chars=40, busy_timeout_s=busy_timeout_s)


async def test_a_job_a_sentence_one_after_the_other():
    async with running() as (engine, backend):
        speech = growing(engine)
        await speech.append("One. Two. And")
        speech.end()
        chunks = [chunk async for chunk in speech]
        assert backend.spoken == ["speech.1", "speech.2", "speech.3"]
        assert [chunk.result.job_id for chunk in chunks if chunk.result] == backend.spoken
        assert speech.result is not None
        assert (speech.result.job_id, speech.result.frames) == ("speech", len("One.Two.And"))
        assert len(speech.result.utterances) == 3
        assert engine.finished == {"stop": 3}


async def test_while_the_text_waits_for_its_author_others_are_served():
    async with running(max_queue=0) as (engine, _):
        speech = growing(engine)
        await speech.append("One. T")
        await anext(speech)
        assert speech.waits_for_text
        waiting = asyncio.ensure_future(anext(speech))
        await until(lambda: not engine.status.running)
        other = engine.submit(SpeechJob("other", "other", SamplingParams()))
        assert len([chunk async for chunk in other]) == 1
        await speech.append("wo. T")
        chunk = await waiting
        assert chunk.result is not None
        assert chunk.result.frames == len("Two.")
        await speech.aclose()


async def test_only_the_first_piece_is_told_that_the_queue_is_full():
    async with running(max_queue=0) as (engine, backend):
        speech = growing(engine)
        await speech.append("One. Two.")
        speech.end()
        await anext(speech)
        await until(lambda: not engine.status.running)
        other = engine.submit(SpeechJob("other", "wait", SamplingParams()))
        await until(lambda: engine.status.running)
        second = asyncio.ensure_future(anext(speech))
        late = growing(engine)
        await late.append("One.")
        late.end()
        with pytest.raises(EngineBusy):
            await anext(late)
        backend.let(4)
        assert len([chunk async for chunk in other]) == 1
        assert (await second).result is not None
        await speech.aclose()


async def test_a_later_piece_does_not_ask_for_ever():
    async with running(max_queue=0) as (engine, backend):
        speech = growing(engine, busy_timeout_s=0.0)
        await speech.append("One. Two.")
        speech.end()
        await anext(speech)
        await until(lambda: not engine.status.running)
        other = engine.submit(SpeechJob("other", "wait", SamplingParams()))
        await until(lambda: engine.status.running)
        with pytest.raises(EngineBusy):
            await anext(speech)
        await other.aclose()
        backend.let(4)


async def test_a_text_that_ended_or_is_too_long_takes_no_more():
    async with running() as (engine, _):
        speech = growing(engine)
        await speech.append("x" * 40)
        with pytest.raises(InvalidRequest, match="41 characters"):
            await speech.append("y")
        speech.end()
        for more in (speech.flush, speech.end):
            with pytest.raises(InvalidRequest, match="has ended"):
                more()
        with pytest.raises(InvalidRequest, match="has ended"):
            await speech.append("")
        assert speech.text == "x" * 40
        await speech.aclose()
