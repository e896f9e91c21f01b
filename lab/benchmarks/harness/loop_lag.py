"""A watchdog: what every callback of an event loop costs it.

What is measured is processor time of the loop's thread: other processes, and other threads that
hold the interpreter, cannot lengthen it, so that a test may hold it to a bound on any machine that
is not several times slower. Full collections of garbage are left out: they cost what the process
has loaded, in tests far more than in a service, which exempts what it loaded (`app.server`).
"""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

MOST_S = 0.1
"""What no callback may cost, whatever is sent: five times what ours take on an idle machine."""


class Callback(NamedTuple):
    """One that ran: what it cost, and what it was."""

    cpu_s: float
    what: str


class Watchdog:
    """What the callbacks of loops in other threads cost, the worst of them kept."""

    def __init__(self) -> None:
        self.worst: list[Callback] = []
        self.count = 0
        self._of_thread = threading.local()

    @property
    def most_s(self) -> float:
        """Processor time of the most expensive callback."""
        return self.worst[0].cpu_s if self.worst else 0.0

    def __str__(self) -> str:
        return f"{1000 * self.most_s:.1f} ms of processor time, {self.count} callbacks"

    def forget(self) -> None:
        """Begin anew, with the next input."""
        self.worst.clear()

    def collecting(self, phase: str, _: dict[str, int]) -> None:
        """Leave out what the collector takes in the thread of the loop."""
        now_s = time.thread_time()
        self._of_thread.collected_s = self.collected_s + (now_s if phase == "stop" else -now_s)

    def ran(self, began_s: float, collected_s: float, handle: asyncio.Handle) -> None:
        """Note a callback that ran."""
        cpu_s = time.thread_time() - began_s - (self.collected_s - collected_s)
        self.count += 1
        if len(self.worst) < 5 or cpu_s > self.worst[-1].cpu_s:
            self.worst = sorted([*self.worst, Callback(cpu_s, repr(handle)[:300])], reverse=True)[
                :5
            ]

    @property
    def collected_s(self) -> float:
        """Processor time that the collector has taken in this thread so far.

        Each thread has its own sum: while one collects, the loop of another may run callbacks.
        """
        return getattr(self._of_thread, "collected_s", 0.0)


@contextmanager
def watched(*, here_too: bool = False) -> Iterator[Watchdog]:
    """Watch every event loop, those of this thread only if they are asked for."""
    watchdog, run = Watchdog(), asyncio.Handle._run
    here = None if here_too else threading.get_ident()

    def _run(self: asyncio.Handle) -> Any:
        if threading.get_ident() == here:
            return run(self)
        began_s, collected_s = time.thread_time(), watchdog.collected_s
        try:
            return run(self)
        finally:
            watchdog.ran(began_s, collected_s, self)

    def collecting(phase: str, info: dict[str, int]) -> None:
        # The collector runs in whichever thread allocates; only the loop's matters.
        if asyncio._get_running_loop() is not None and threading.get_ident() != here:
            watchdog.collecting(phase, info)

    gc.callbacks.append(collecting)
    asyncio.Handle._run = _run  # type: ignore[method-assign]
    try:
        yield watchdog
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        gc.callbacks.remove(collecting)
