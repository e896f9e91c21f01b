"""The threads in which sound is shaped and encoded, a step at a time, shared fairly.

Whoever asks has a line of steps of his own, and the lines take turns: a stranger's step waits for
those that run and for one of each other asker, however many these have asked for. What nobody wants
any more is not begun.
"""

import asyncio
import os
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Workshop:
    """Runs short steps in threads. Touched on the event loop alone."""

    def __init__(self, threads: int | None = None) -> None:
        """Begin with nothing to do.

        Args:
            threads: How many steps run at once; None is one a core, 4 at most.
        """
        count = threads or min(4, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="speech-sound")
        self._free = count
        self._lines: OrderedDict[str, deque[_Step]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many steps have not begun."""
        return sum(map(len, self._lines.values()))

    async def run(self, who: str, work: Callable[[], T]) -> T:
        """Return what a step gives, once its turn has come.

        Args:
            who: In whose line it stands; see `app.api.gate.middleware.asker`.
            work: At most some 100 ms; of two steps for one object the second is asked for when the
                first is done.
        """
        step = _Step(work, asyncio.get_running_loop())
        self._lines.setdefault(who, deque()).append(step)
        self._begin()
        result: T = await step.done
        return result

    def close(self) -> None:
        """Begin nothing more."""
        self._lines.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        while self._free and self._lines:
            who, line = self._lines.popitem(last=False)
            step = line.popleft()
            if line:
                self._lines[who] = line  # behind all others
            if step.done.cancelled():
                continue
            self._free -= 1
            self._threads.submit(step.work).add_done_callback(step.ended(self._end))

    def _end(self, step: "_Step", work: "Future[Any]") -> None:
        self._free += 1
        if not step.done.cancelled():
            error = work.exception()
            if error is None:
                step.done.set_result(work.result())
            else:
                step.done.set_exception(error)
        self._begin()


class _Step:
    """Something to do, and a promise of what it gives."""

    def __init__(self, work: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.work, self._loop = work, loop
        self.done: asyncio.Future[Any] = loop.create_future()

    def ended(self, end: "Callable[[_Step, Future[Any]], None]") -> "Callable[[Future[Any]], None]":
        """Return what a thread calls when the work is over."""

        def tell(work: "Future[Any]") -> None:
            if not self._loop.is_closed() and not work.cancelled():
                self._loop.call_soon_threadsafe(end, self, work)

        return tell
