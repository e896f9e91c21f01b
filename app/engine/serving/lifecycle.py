"""The states of an engine, from its start to its end, and who waits for which."""

import asyncio
import threading
from collections.abc import Callable
from time import monotonic

from app.engine.errors import EngineNotReady
from app.engine.serving.status import WAITS_FOR, EngineState

_POLL_S = 0.02


class Lifecycle:
    """new -> loading -> warming -> ready -> draining -> stopped, or failed. Any thread.

    Attributes:
        error: Why it failed.
        began_s: When it was made, by `time.monotonic`.
    """

    def __init__(self, *workers: str) -> None:
        self.state: EngineState = "new"
        self.error: str | None = None
        self.began_s = monotonic()
        self._cold = set(workers)  # those that do not have all that they need
        self._changing = threading.Lock()  # guards the state, and who is cold
        self._on_failed: Callable[[], None] = lambda: None

    def when_failed(self, callback: Callable[[], None]) -> None:
        """Have a function called, in a worker, once only a restart of the process helps."""
        self._on_failed = callback

    def enter(self, state: EngineState) -> bool:
        """Change the state unless the engine was stopped; return whether it is the new one."""
        with self._changing:
            if self.state != "stopped":
                self.state = state
            return self.state == state

    def warmed(self, worker: str) -> bool:
        """Note that a worker has all that it needs; True if jobs can be accepted now."""
        with self._changing:
            self._cold.discard(worker)
            return not self._cold and self.state == "warming"

    def drain(self) -> None:
        """Accept no more, if jobs are accepted."""
        with self._changing:
            if self.state == "ready":
                self.state = "draining"

    def stop(self) -> None:
        """End it; one that failed stays so."""
        with self._changing:
            if self.state != "failed":
                self.state = "stopped"

    def fail(self, why: str) -> None:
        """Enter the state `failed`, which only a restart of the process ends."""
        self.error = why
        self.enter("failed")

    def tell_failed(self) -> None:
        """Call who waits for the failure."""
        self._on_failed()

    async def wait_ready(self) -> None:
        """Wait until jobs are accepted; raises as `check_ready` where they never will be."""
        while self.state in {"new", "loading", "warming"}:
            await asyncio.sleep(_POLL_S)
        self.check_ready()

    def check_ready(self) -> None:
        """Raise EngineNotReady unless jobs are accepted."""
        if self.state != "ready":
            raise self.not_ready()

    def not_ready(self) -> EngineNotReady:
        """Return the error of a request for which the engine is not ready."""
        why = self.error or f"waiting for {WAITS_FOR.get(self.state)}"
        return EngineNotReady(f"not ready: {why}", retry_after_s=5)
