"""Threads in which every client has its own queue, and the queues take turns.

A step waits for the running ones and for at most one of each other client. Cancelled steps are not
started.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakValueDictionary

_T = TypeVar("_T")


class RenderPool:
    """Runs short functions in threads, one per core and at most 4; from the event loop only."""

    def __init__(self, threads: int | None = None) -> None:
        count = threads or min(4, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="speech-render")
        self._free = asyncio.Semaphore(count)
        # Of each client one step at a time waits for a thread; whoever came first is next.
        self._turns = WeakValueDictionary[str, asyncio.Lock]()

    async def run(self, client: str, work: Callable[[], _T]) -> _T:
        """Run a function of at most some 100 ms in a thread, when it is its client's turn.

        Steps on one object must not run at once: await each before the next.
        """
        turn = self._turns.setdefault(client, asyncio.Lock())
        async with turn:
            await self._free.acquire()
        loop = asyncio.get_running_loop()

        def end(_: "Future[_T]") -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._free.release)

        step = self._threads.submit(work)
        step.add_done_callback(end)
        return await asyncio.wrap_future(step)

    def close(self) -> None:
        """Drop all steps that have not begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)
