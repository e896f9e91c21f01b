"""What a server holds: jobs, slots, tasks, threads, files, memory. What a leak looks like."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass

import httpx
import psutil

from app.engine.engine import SpeechEngine

PATH = "/vitals"
_USED = ("tts_slots", {"state": "used"})


@dataclass(frozen=True)
class Vitals:
    """What a server held at one moment, its voice process counted in.

    Attributes:
        queued: Jobs that wait.
        running: Jobs that are spoken.
        slots: Rows of the level-0 cache in use; None where the engine does not count them.
        tasks: On the event loop.
        processes: It and its children.
        threads: Of them all.
        files: Open handles, sockets too.
        rss_bytes: Resident memory.
    """

    queued: int
    running: int
    slots: int | None
    tasks: int
    processes: int
    threads: int
    files: int
    rss_bytes: int

    @property
    def idle(self) -> bool:
        """Whether no job is there and no slot is taken."""
        return not (self.queued or self.running or self.slots)

    def left_since(self, before: Vitals) -> dict[str, int]:
        """Return how many more tasks, threads, files and slots there are than before."""
        names = ("tasks", "processes", "threads", "files", "queued", "running", "slots")
        return {name: (getattr(self, name) or 0) - (getattr(before, name) or 0) for name in names}


def take_vitals(engine: SpeechEngine) -> Vitals:
    """Look at this process and its children; called on its event loop."""
    status, own = engine.status, psutil.Process()
    slots = engine.metrics.registry.get_sample_value(*_USED)
    processes = [own, *own.children(recursive=True)]
    return Vitals(
        queued=status.queued,
        running=status.running,
        slots=None if slots is None else int(slots),
        tasks=len(asyncio.all_tasks()),
        processes=len(processes),
        threads=sum(one.num_threads() for one in processes),
        files=sum(one.num_fds() for one in processes),
        rss_bytes=sum(one.memory_info().rss for one in processes),
    )


def collect_garbage() -> None:
    """Let go of what nothing refers to, so that what is left is a leak."""
    gc.collect()


async def ask_vitals(client: httpx.AsyncClient, *, collect: bool = False) -> Vitals:
    """Ask a server of `benchmarks.harness.observed`.

    Args:
        client: Of that server.
        collect: Whether it collects its garbage first, which takes tens of milliseconds.
    """
    answer = await client.get(PATH, params={"collect": str(collect).lower()})
    return Vitals(**answer.raise_for_status().json())


async def settled_vitals(url: str, timeout_s: float = 10.0) -> Vitals:
    """Return what a server holds once it is idle and its connections are closed.

    Args:
        url: Of the server.
        timeout_s: After which what it then holds is returned: something was left.
    """
    async with httpx.AsyncClient(base_url=url) as client:
        vitals = await ask_vitals(client, collect=True)
        ends_s = asyncio.get_running_loop().time() + timeout_s
        calm = 0
        while calm < 5 and asyncio.get_running_loop().time() < ends_s:
            await asyncio.sleep(0.1)
            before, vitals = vitals, await ask_vitals(client, collect=True)
            same = (before.tasks, before.files) == (vitals.tasks, vitals.files)
            calm = calm + 1 if vitals.idle and same else 0
        return vitals
