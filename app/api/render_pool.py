"""Thread pool that renders and encodes audio, a step at a time, shared fairly between clients.

Every client has its own queue, and the queues take turns: a step waits for the running ones and for
at most one of each other client. Cancelled steps are not started.
"""

import asyncio
import os
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class RenderPool:
    """Runs short functions in threads. Use it from the event loop only.

    Args:
        threads: Number of steps that run at once; None is one per core, at most 4.
    """

    def __init__(self, threads: int | None = None) -> None:
        count = threads or min(4, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="speech-sound")
        self._free = count
        self._queues: OrderedDict[str, deque[_Step]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Number of steps that have not started."""
        return sum(map(len, self._queues.values()))

    async def run(self, client: str, work: Callable[[], T]) -> T:
        """Run a function in a thread when it is its client's turn, and return its result.

        Args:
            client: Whose queue it joins; see `app.api.gate.admission.client_of`.
            work: Takes at most some 100 ms. Steps on one object must not run at once: await each
                before the next.
        """
        step = _Step(work, asyncio.get_running_loop())
        self._queues.setdefault(client, deque()).append(step)
        self._start_steps()
        result: T = await step.done
        return result

    def close(self) -> None:
        """Drop all queued steps."""
        self._queues.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start_steps(self) -> None:
        while self._free and self._queues:
            client, queue = self._queues.popitem(last=False)
            step = queue.popleft()
            if queue:
                self._queues[client] = queue  # behind all others
            if step.done.cancelled():
                continue
            self._free -= 1
            self._threads.submit(step.work).add_done_callback(step.when_done(self._end))

    def _end(self, step: "_Step", work: "Future[Any]") -> None:
        self._free += 1
        if not step.done.cancelled():
            error = work.exception()
            if error is None:
                step.done.set_result(work.result())
            else:
                step.done.set_exception(error)
        self._start_steps()


class _Step:
    """A function to run and the future of its result."""

    def __init__(self, work: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.work, self._loop = work, loop
        self.done: asyncio.Future[Any] = loop.create_future()

    def when_done(
        self, end: "Callable[[_Step, Future[Any]], None]"
    ) -> "Callable[[Future[Any]], None]":
        """Return the callback for the thread's future; it calls ``end`` on the event loop."""

        def call_on_loop(work: "Future[Any]") -> None:
            if not self._loop.is_closed() and not work.cancelled():
                self._loop.call_soon_threadsafe(end, self, work)

        return call_on_loop
