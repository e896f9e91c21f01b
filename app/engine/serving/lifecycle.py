"""The life of an engine: loading, warm-up, the two worker threads, and the end.

new -> loading -> warming -> ready -> draining -> stopped, or failed.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from time import monotonic
from typing import Any

from app.engine.errors import EngineNotReady
from app.engine.interface import Backend, Batch, GoldenResult
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.options import EngineOptions
from app.engine.serving.scheduler import Scheduler
from app.engine.serving.sound_worker import SoundWorker
from app.engine.serving.status import WAITS_FOR, State
from app.engine.serving.supervisor import Supervisor

log = logging.getLogger(__name__)


class Lifecycle:
    """Loads the model and runs the workers in their threads. Any thread may call.

    Args:
        load: Returns the model; called once, in the level-0 thread.

    Attributes:
        deterministic: Result of `Backend.check_deterministic`; None before.
        golden: Result of `Backend.check_golden`; None before, and if it was not asked for.
        on_close: Called, in any thread, when jobs are no longer accepted and those there are to be
            cancelled.
        on_failed: Called, in a worker, when only a restart of the process helps.
    """

    def __init__(
        self,
        load: Callable[[], Backend],
        scheduler: Scheduler,
        sound_worker: SoundWorker,
        metrics: EngineMetrics,
        options: EngineOptions,
    ) -> None:
        self._load, self._options = load, options
        self._scheduler, self._sound_worker = scheduler, sound_worker
        self._queue = scheduler.queue
        self._supervisor = Supervisor(metrics, on_give_up=self._fail)
        self._metrics = metrics
        self._idle_after_s = options.unload_after_s or math.inf
        self._backend: Backend | None = None
        self.state: State = "new"
        self.error: str | None = None
        self.deterministic: bool | None = None
        self.golden: GoldenResult | None = None
        self.on_close: Callable[[], None] = lambda: None
        self.on_failed: Callable[[], None] = lambda: None
        self._changing = threading.Lock()  # held while the state changes
        self._warming, self._cold = threading.Lock(), {"level 0", "sound"}
        self._began_s = monotonic()
        self.thread = threading.Thread(target=self._work, name="speech-level-0", daemon=True)

    @property
    def backend(self) -> Backend:
        """The loaded model."""
        if self._backend is None:
            raise self._not_ready()
        return self._backend

    async def wait_ready(self) -> None:
        """Wait until jobs are accepted."""
        while self.state in {"new", "loading", "warming"}:
            await asyncio.sleep(0.02)
        self.check_ready()

    def check_ready(self) -> None:
        """Do nothing if jobs are accepted."""
        if self.state != "ready":
            raise self._not_ready()

    def drain(self) -> None:
        """Accept no more jobs."""
        if self.state == "ready":
            self.state = "draining"

    async def stop(self) -> None:
        """End the workers, and wait until they have ended."""
        with self._changing:
            if self.state != "failed":
                self.state = "stopped"
        self.on_close()
        if self.thread.ident is not None:
            await asyncio.to_thread(self.thread.join)

    def _not_ready(self) -> EngineNotReady:
        why = self.error or f"waiting for {WAITS_FOR.get(self.state)}"
        return EngineNotReady(f"not ready: {why}", retry_after_s=5)

    # What follows runs in the workers.

    def _enter(self, state: State) -> bool:
        """Change the state unless the engine was stopped; return whether it is the new one."""
        with self._changing:
            if self.state != "stopped":
                self.state = state
            return self.state == state

    def _fail(self, why: str) -> None:
        """Enter the state `failed`, which only a restart of the process ends."""
        self.error = why
        self._enter("failed")
        self.on_close()
        self.on_failed()

    def _work(self) -> None:
        """Load the model, and run level 0 here and the sound worker in a thread until stopped."""
        try:
            backend, batch = self._load_and_warm_up()
        except Exception as error:
            # A ValueError is about the operator's files and says all; others are our mistakes.
            expected = isinstance(error, ValueError)
            why = str(error) or type(error).__name__
            log.error("the model cannot be used: %s", why, exc_info=not expected)
            self._fail(why)
            return
        if self.state == "stopped":
            return

        batches = [batch]

        def run_level_0() -> None:
            self._run_level_0(backend, batches)

        def run_sound() -> None:
            with backend.sound_context():
                backend.prepare_sound()
                self._warmed("sound", backend)
                self._sound_worker.run(backend)

        def supervise_sound() -> None:
            self._supervisor.run("sound", run_sound, self._sound_worker.fail_all)

        sound = threading.Thread(target=supervise_sound, name="speech-sound", daemon=True)
        sound.start()
        self._supervisor.run("level 0", run_level_0, self._scheduler.fail_all)
        sound.join()
        backend.close()

    def _run_level_0(self, backend: Backend, batches: list[Batch[Any]]) -> None:
        """Run the scheduler, first in a batch that is there; the idle model leaves its device."""
        while not self._queue.closed:
            with closing(batches.pop() if batches else backend.batch(self._options.slots)) as batch:
                self._warmed("level 0", backend)
                rate_hz = backend.info.frame_rate_hz
                self._scheduler.run(batch, rate_hz, self._idle_after_s, backend.fits)
            if not self._queue.closed:
                log.info("no job for %g s: the model leaves its device", self._idle_after_s)
                backend.unload(lambda: self._queue.empty)
                self._scheduler.sleep()

    def _load_and_warm_up(self) -> tuple[Backend, Batch[Any]]:
        """Return the model once it has spoken, and a batch."""
        self._enter("loading")
        log.info("loading the model")
        backend = self._load()
        self._enter("warming")
        backend.prepare_sound()
        self.deterministic = backend.check_deterministic()
        if not self.deterministic:
            log.warning("a job has other codes among others than alone")
        batch = backend.measure(self._scheduler.capacity, self._options.slots)
        if self._options.check_golden:
            self.golden = backend.check_golden()
            if self.golden is not None and self.golden.different:
                log.warning(
                    "%d of %d golden requests have other codes on this machine than those stored",
                    self.golden.different,
                    self.golden.spoken,
                )
        return backend, batch

    def _warmed(self, worker: str, backend: Backend) -> None:
        """Note that a worker has all that it needs; when both have, jobs are accepted."""
        with self._warming:
            self._cold.discard(worker)
            if self._cold or self.state != "warming":
                return
            self._backend = backend
            for name in backend.cache_bytes:
                count = partial(_cache_bytes, backend, name)
                self._metrics.cache_bytes.labels(name).set_function(count)
            self._queue.free_rows = self._options.slots
            self._scheduler.beat_s = self._sound_worker.beat_s = monotonic()
            if self._enter("ready"):
                info, took_s = backend.info, monotonic() - self._began_s
                log.info("ready: %s on %s in %.1f s", info.name, info.device, took_s)


def _cache_bytes(backend: Backend, name: str) -> int:
    return backend.cache_bytes.get(name, 0)
