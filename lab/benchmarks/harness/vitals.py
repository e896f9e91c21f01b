"""Resources held by a server: jobs, slots, tasks, threads, files, memory; to detect leaks."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass

import httpx2
import psutil

from app.engine.engine import SpeechEngine

PATH = "/vitals"
_USED = ("tts_slots", {"state": "used"})


@dataclass(frozen=True)
class Vitals:
    """Resources held at one moment by a server and its child processes."""

    queued: int  # jobs that wait
    running: int  # jobs in work
    slots: int | None  # slots of the level-0 cache in use; None if the engine does not count them
    tasks: int  # tasks on the event loop
    processes: int  # the process and its children
    threads: int  # threads of all processes
    files: int  # open file descriptors, including sockets
    rss_bytes: int  # resident memory

    @property
    def idle(self) -> bool:
        """Whether there is no job and no slot is in use."""
        return not (self.queued or self.running or self.slots)

    def left_since(self, before: Vitals) -> dict[str, int]:
        """Return the increase of each count since an earlier reading."""
        names = ("tasks", "processes", "threads", "files", "queued", "running", "slots")
        return {name: (getattr(self, name) or 0) - (getattr(before, name) or 0) for name in names}


def take_vitals(engine: SpeechEngine) -> Vitals:
    """Measure this process and its children; call on its event loop."""
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
    """Collect garbage, so that what remains is referenced."""
    gc.collect()


async def ask_vitals(client: httpx2.AsyncClient, *, collect: bool = False) -> Vitals:
    """Fetch the vitals of a server of `lab.benchmarks.harness.instrumented`.

    To ``collect`` its garbage first takes tens of milliseconds.
    """
    answer = await client.get(PATH, params={"collect": str(collect).lower()})
    return Vitals(**answer.raise_for_status().json())


async def settled_vitals(url: str, timeout_s: float = 10.0) -> Vitals:
    """Return the vitals once the server is idle and its connections are closed, or time is up."""
    async with httpx2.AsyncClient(base_url=url) as client:
        vitals = await ask_vitals(client, collect=True)
        ends_s = asyncio.get_running_loop().time() + timeout_s
        calm = 0
        while calm < 5 and asyncio.get_running_loop().time() < ends_s:
            await asyncio.sleep(0.1)
            before, vitals = vitals, await ask_vitals(client, collect=True)
            same = (before.tasks, before.files) == (vitals.tasks, vitals.files)
            calm = calm + 1 if vitals.idle and same else 0
        return vitals
