import asyncio
import threading
import time
from contextlib import aclosing

import pytest
import torch

from app.engine.core import SpeechJob
from app.engine.engine import SpeechEngine
from app.engine.errors import (
    DeadlineExceeded,
    EngineBusy,
    EngineNotReady,
    GenerationFailed,
    InvalidRequest,
)
from app.engine.serving.supervisor import MAX_RESTARTS
from app.settings import Settings
from models.checkpoints.files import CheckpointError
from samplers.knobs.params import SamplingParams
from tests.app.engine.running import running, until
from tests.fakes import FakeBackend, FakeBatch, engine_that_loads

pytestmark = pytest.mark.anyio


def job(text: str, name: str = "") -> SpeechJob:
    return SpeechJob(name or text, text, SamplingParams())


async def result(engine: SpeechEngine, text: str):
    async with aclosing(engine.submit(job(text))) as chunks:
        return [chunk async for chunk in chunks][-1].result


async def test_a_job_gives_chunks_and_a_result_with_the_very_params_of_the_caller():
    wanted = job("hello")
    async with running() as (engine, _), aclosing(engine.submit(wanted)) as chunks:
        spoken = [chunk async for chunk in chunks][-1].result
        assert spoken is not None
        assert (spoken.finish_reason, spoken.frames, spoken.job_id) == ("stop", 5, "hello")
        assert spoken.params is wanted.params
        assert engine.finished == {"stop": 1}


async def test_jobs_are_spoken_in_the_order_in_which_they_came():
    async with running() as (engine, backend):
        await asyncio.gather(*(result(engine, text) for text in ("one", "two", "three")))
    assert backend.spoken == ["one", "two", "three"]


async def test_a_full_queue_refuses_at_once_and_says_when_to_come_back():
    async with running(max_queue=1) as (engine, backend):
        first = asyncio.create_task(result(engine, "wait"))
        await until(lambda: engine.status.running)
        second = asyncio.create_task(result(engine, "next"))
        await until(lambda: engine.status.queued == 1)
        with pytest.raises(EngineBusy) as refusal:
            engine.submit(job("third"))
        assert refusal.value.retry_after_s >= 1
        backend.let(4)
        assert (await first).frames == 4
        assert (await second).frames == 4


async def test_without_a_queue_one_job_runs_and_none_waits():
    async with running(max_queue=0) as (engine, backend):
        first = asyncio.create_task(result(engine, "wait"))
        await until(lambda: engine.status.running)
        with pytest.raises(EngineBusy):
            engine.submit(job("second"))
        backend.let(4)
        await first
        await until(lambda: not engine.status.running)
        assert (await result(engine, "again")).frames == 5


async def test_closing_the_iterator_stops_the_job_at_its_next_frame():
    async with running() as (engine, backend):
        stream = engine.submit(job("wait for me"))
        backend.let(3)
        await until(lambda: stream.progress.frames == 3)
        await stream.aclose()
        backend.let(100)
        await until(lambda: not engine.status.running)
        assert backend.frames_made["wait for me"] in {3, 4}
        assert engine.finished == {"cancelled": 1}
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_a_bad_request_is_refused_while_another_is_spoken():
    async with running() as (engine, backend):
        first = asyncio.create_task(result(engine, "wait"))
        await until(lambda: engine.status.running)
        with pytest.raises(InvalidRequest):
            await result(engine, " ")
        assert engine.status.queued == 0
        assert not engine.finished
        backend.let(4)
        await first


async def test_texts_are_read_in_one_thread_that_is_not_the_event_loops_nor_the_workers():
    async with running() as (engine, backend):
        backend.readers.clear()  # the warm-up is the worker's
        await asyncio.gather(*(result(engine, text) for text in ("one", "two", "three")))
    (reader,) = backend.readers
    assert reader.startswith("speech-text")


async def test_a_text_that_takes_long_to_read_holds_a_place_and_can_be_left():
    reads = FakeBackend(block={"hard": "text"})
    async with running(reads, max_queue=0) as (engine, backend):
        stream = engine.submit(job("hard"))
        assert engine.status.queued == 1
        with pytest.raises(EngineBusy):
            engine.submit(job("second"))
        await stream.aclose()
        assert engine.status.queued == 0
        backend.read_on.set()
        assert (await result(engine, "again")).frames == 5
        assert engine.finished == {"cancelled": 1, "stop": 1}
    assert "hard" not in backend.spoken


async def test_no_text_waits_for_a_recording_and_clients_recordings_take_turns():
    async with running(FakeBackend(block={"hard": "text"})) as (engine, backend):
        order = list[str]()

        async def read(client: str, content: bytes) -> None:
            await engine.recording("id", content, client)
            order.append(client)

        reading = [
            asyncio.create_task(read("attacker", b"hard")),
            *(asyncio.create_task(read("attacker", b"more")) for _ in range(3)),
            asyncio.create_task(read("stranger", b"mine")),
        ]
        encoding = asyncio.create_task(engine.encode("id", b"codes", "another"))
        await until(lambda: engine.status.beats_s["recordings"] > 0)
        assert (await result(engine, "hello")).frames == 5
        assert order == []
        backend.read_on.set()
        await asyncio.gather(*reading)
        assert order.index("stranger") <= 2
        assert len(await encoding) == len(b"codes")
        await until(lambda: engine.status.beats_s["recordings"] == 0)


async def test_a_replay_takes_its_turn_and_is_no_job_of_its_own():
    async with running() as (engine, backend):
        spoken = await result(engine, "hello")
        first = asyncio.create_task(result(engine, "wait"))
        await until(lambda: engine.status.running)
        async with aclosing(engine.replay("again", spoken)) as stream:
            assert engine.status.queued == 1
            backend.let(4)
            chunks = [chunk async for chunk in stream]
        await first
        assert chunks[-1].result is spoken
        assert engine.finished == {"stop": 2}


async def test_the_deadline_ends_a_job_that_runs_and_one_that_waits():
    async with running(request_timeout_s=0.05) as (engine, backend):
        outcomes = await asyncio.gather(
            *(result(engine, text) for text in ("wait 1", "wait 2")), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [DeadlineExceeded] * 2
        backend.let(100)
        await until(lambda: not engine.status.running)
        assert engine.finished == {"error": 2}
        assert backend.frames_made.get("wait 2", 0) <= 1


async def test_draining_finishes_what_was_taken_and_takes_no_more():
    async with running() as (engine, backend):
        taken = [asyncio.create_task(result(engine, text)) for text in ("wait", "next")]
        await until(lambda: engine.status.queued == 1)
        draining = asyncio.create_task(engine.drain(timeout_s=20))
        await until(lambda: engine.status.state == "draining")
        with pytest.raises(EngineNotReady):
            engine.submit(job("late"))
        backend.let(4)
        await draining
        assert [(await task).frames for task in taken] == [4, 4]


async def test_stopping_tells_every_reader():
    async with running() as (engine, backend):
        readers = [asyncio.create_task(result(engine, text)) for text in ("wait", "next")]
        await until(lambda: engine.status.queued == 1)
        stopping = asyncio.create_task(engine.stop())
        await until(lambda: engine.status.state == "stopped")
        backend.let(4)
        await stopping
        assert not engine._thread.is_alive()
        outcomes = await asyncio.gather(*readers, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [EngineNotReady] * 2
        assert engine.finished == {"cancelled": 2}


async def test_before_it_is_ready_it_tells_what_it_waits_for():
    engine, may_load = engine_that_loads()
    assert engine.status.waits_for == "the engine to start"
    async with engine:
        await until(lambda: engine.status.state == "loading")
        with pytest.raises(EngineNotReady, match="waiting for the model to load"):
            engine.submit(job("early"))
        engine.check_healthy()
        may_load.set()
        await engine.lifecycle.wait_ready()
        assert engine.status.waits_for is None


async def test_a_model_that_cannot_be_loaded_is_told_and_is_unhealthy():
    def load() -> FakeBackend:
        raise CheckpointError("tensor x is missing")

    async with SpeechEngine(load, Settings(max_queue=1, request_timeout_s=60)) as engine:
        with pytest.raises(EngineNotReady, match="tensor x is missing"):
            await engine.lifecycle.wait_ready()
        with pytest.raises(EngineNotReady, match="tensor x is missing"):
            engine.check_healthy()
        assert engine.status.state == "failed"


async def test_it_can_be_stopped_while_it_loads():
    engine, may_load = engine_that_loads()
    engine.start()
    stopping = asyncio.create_task(engine.stop())
    await until(lambda: engine.status.state == "stopped")
    may_load.set()
    await stopping
    assert engine.status.state == "stopped"


async def test_a_worker_that_does_not_move_is_unhealthy(monkeypatch):
    monkeypatch.setattr("app.engine.serving.status.STALLED_AFTER_S", 0.02)
    async with running() as (engine, backend):
        stream = engine.submit(job("wait"))
        await asyncio.to_thread(backend.began.wait, 20)
        time.sleep(0.05)
        with pytest.raises(EngineNotReady, match="has not moved"):
            engine.check_healthy()
        await stream.aclose()
        backend.let(4)


async def test_jobs_run_side_by_side_where_there_are_rows():
    async with running(slots=2) as (engine, backend):
        first, second, third = (
            asyncio.create_task(result(engine, text)) for text in ("wait 1", "wait 2", "wait 3")
        )
        await until(lambda: engine.status.running == 2)
        assert (engine.status.used_slots, engine.status.queued) == (2, 1)
        backend.let(18)
        assert [(await one).frames for one in (first, second, third)] == [6, 6, 6]
        await until(lambda: not engine.status.used_slots)


async def test_a_more_urgent_job_overtakes_those_that_wait_but_none_that_runs():
    async with running() as (engine, backend):
        first = asyncio.create_task(result(engine, "wait"))
        await until(lambda: engine.status.running)
        later = engine.submit(SpeechJob("later", "later", SamplingParams(), priority=1))
        sooner = engine.submit(job("sooner"))
        await until(lambda: engine.status.queued == 2 and sooner.plan and later.plan)
        backend.let(4)
        await first
        for stream in (later, sooner):
            assert [chunk async for chunk in stream][-1].result
    assert backend.spoken == ["wait", "sooner", "later"]


@pytest.mark.parametrize("thread", ["ar thread", "audio thread"])
async def test_a_worker_that_breaks_loses_what_it_was_at_and_goes_on_with_who_waits(thread):
    breaking = FakeBackend(block={"lost": "ar"}, fail_at={"lost": thread})
    async with running(breaking) as (engine, backend):
        lost = asyncio.create_task(result(engine, "lost"))
        await until(lambda: engine.status.running)
        waiting = asyncio.create_task(result(engine, "next"))
        await until(lambda: engine.status.queued == 1)
        backend.let(3)
        with pytest.raises(GenerationFailed, match="try again"):
            await lost
        assert (await waiting).frames == 4
        assert (await result(engine, "after")).frames == 5
        engine.check_healthy()
        assert engine.metrics.registry.get_sample_value("tts_worker_restarts_total") == 1
        assert engine.finished == {"error": 1, "stop": 2}


async def test_a_worker_that_breaks_again_and_again_is_given_up():
    async with running(FakeBackend(fail_at={"crash": "ar thread"})) as (engine, _):
        for _ in range(MAX_RESTARTS + 1):
            with pytest.raises((GenerationFailed, EngineNotReady)):
                await result(engine, "a crash")
        await until(lambda: engine.status.state == "failed")
        with pytest.raises(EngineNotReady, match="again and again"):
            engine.submit(job("more"))
        with pytest.raises(EngineNotReady, match="again and again"):
            engine.check_healthy()


async def test_a_device_that_is_lost_is_given_up_at_once(monkeypatch):
    def lost(batch, jobs):
        raise torch.AcceleratorError("CUDA error, on purpose")

    monkeypatch.setattr(FakeBatch, "step", lost)
    async with running() as (engine, _):
        with pytest.raises((GenerationFailed, EngineNotReady)):
            await result(engine, "hello")
        await until(lambda: engine.status.state == "failed")
        with pytest.raises(EngineNotReady, match="lost its device"):
            engine.check_healthy()


async def test_jobs_are_accepted_once_both_workers_have_what_they_need():
    class Cold(FakeBackend):
        warm = threading.Event()
        asked = 0

        def prepare_audio(self):
            self.asked += 1
            if threading.current_thread().name == "speech-audio":
                assert self.warm.wait(20)

    backend = Cold()
    engine = SpeechEngine(lambda: backend, Settings(max_queue=4, request_timeout_s=20))
    engine.start()
    await until(lambda: backend.asked == 2)
    assert engine.status.state == "warming"
    backend.warm.set()
    await engine.lifecycle.wait_ready()
    await engine.stop()


async def test_what_is_measured_of_a_job():
    async with running() as (engine, _):
        await result(engine, "hello")
        sample = engine.metrics.registry.get_sample_value
        assert sample("tts_jobs_total", {"reason": "stop"}) == 1
        assert sample("tts_tokens_total") == 5
        assert sample("tts_first_audio_seconds_count") == 1
        assert sample("tts_queued_jobs") == 0
        await until(lambda: sample("tts_slots", {"state": "used"}) == 0)
        assert sample("tts_slots", {"state": "free"}) == 1
        assert sample("tts_kv_bytes", {"of": "level_0"}) == 1000


async def test_an_engine_that_nobody_asks_leaves_its_device_until_somebody_does():
    async with running(unload_after_s=0.05) as (engine, backend):
        await until(lambda: backend.unloaded == 1)
        assert (await result(engine, "hello")).frames == 5
        assert (await result(engine, "again")).frames == 5
        await until(lambda: backend.unloaded == 2)
