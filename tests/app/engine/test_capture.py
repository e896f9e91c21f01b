"""The life of an engine on a GPU: while one thread records, no other computes."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.engine.ar.stage import ArStage
from app.engine.backend import batch_factory, encoder, synthesizer
from app.engine.backend.model_memory import ModelMemory
from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import SpeechJob, SpeechResult
from app.engine.engine import SpeechEngine
from app.engine.errors import GenerationFailed
from app.engine.join.job import AudioJob
from app.engine.memory import Memory
from app.engine.nar import stage
from app.engine.nar.graph_runner import ChunkSizes, NarGraphRunner
from app.settings import Settings
from gpu.graphs import GraphCapturer
from models.stack.paged_passes import PagedPasses
from samplers.knobs.params import SamplingParams
from tests.app.tools.serving import settings_of

pytestmark = pytest.mark.anyio


class Crash(BaseException):
    """Ends a worker: what is an `Exception` fails a job alone."""


class Device:
    """Stands for a GPU on which functions are captured, and that notes who disturbs a graph."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.captured, self.disturbed = 0, list[str]()
        self._recording: threading.Thread | None = None

    def capture(self, function: Callable[[], None]) -> Callable[[], None]:
        """Take the device as `Recorder.record` does, and let other threads run meanwhile."""
        with self.lock:
            self._note("recorded")
            self._recording = threading.current_thread()
            function()
            threading.Event().wait(0.001)
            self._recording = None
            self.captured += 1
        return function

    def watch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that notes whether it is called while another thread records."""

        def watched(*given: Any) -> Any:
            self._note("computed")
            return function(*given)

        return watched

    def _note(self, what: str) -> None:
        thread = threading.current_thread()
        if self._recording not in {None, thread}:
            self.disturbed.append(f"{thread.name} {what}")


async def spoken(engine: SpeechEngine, name: str) -> SpeechResult:
    job = SpeechJob(name, "Hi.", SamplingParams(seed=1), max_duration_s=0.4)
    async with aclosing(engine.submit(job)) as chunks:
        result = [chunk async for chunk in chunks][-1].result
    assert result is not None
    return result


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_no_thread_computes_while_another_records_at_the_start_after_crashes_and_at_a_wake(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, armed, asleep = Device(), set[str](), list[int]()

    def crashing(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any) -> Any:
            if name in armed:
                armed.remove(name)
                raise Crash(name)
            return function(*given)

        return called

    for module in (encoder, batch_factory, stage):
        monkeypatch.setattr(module, "device_lock", lambda _: device.lock)
    monkeypatch.setattr(GraphCapturer, "capture", lambda _, function: device.capture(function))
    few = partial(NarGraphRunner, sizes=ChunkSizes(rows=(2,), columns=512, streams=9))
    monkeypatch.setattr(synthesizer, "NarGraphRunner", few)
    monkeypatch.setattr(synthesizer, "memory_of", lambda model, *_: Memory(model, 16 << 20))
    monkeypatch.setattr(stage.NarStage, "ready", stage.NarStage.warm_up)
    monkeypatch.setattr(PagedPasses, "run", device.watch(PagedPasses.run))
    monkeypatch.setattr(ArStage, "step", crashing("level 0", ArStage.step))
    monkeypatch.setattr(AudioJob, "push", crashing("sound", AudioJob.push))
    unload = ModelMemory.unload

    def unloaded(own: ModelMemory, is_idle: Callable[[], bool]) -> None:
        unload(own, is_idle)
        asleep.append(1)

    monkeypatch.setattr(ModelMemory, "unload", unloaded)
    options = Settings(max_queue=4, request_timeout_s=60.0, slots=2, unload_after_s=0.5)
    model = settings_of(toy, max_text_chars=200)
    async with SpeechEngine(lambda: Synthesizer.load(model), options) as engine:
        await engine.lifecycle.wait_ready()
        first = await spoken(engine, "first")
        counts = [device.captured]
        for worker in ("level 0", "sound"):
            armed.add(worker)
            with pytest.raises(GenerationFailed):
                await spoken(engine, f"{worker} crashes")
            assert (await spoken(engine, f"after {worker}")).codes_sha256 == first.codes_sha256
        counts.append(device.captured)
        asleep.clear()
        await until(lambda: bool(asleep))
        assert (await spoken(engine, "awake")).codes_sha256 == first.codes_sha256
        counts.append(device.captured)
    assert 0 < counts[0] < counts[1] < counts[2]
    assert not device.disturbed
