"""The service over a device that computes nothing: what is left is the work of the host.

    PYTHONPATH=CHECKOUT python -P lab/benchmarks/card/stand_in.py

Pages, graphs, transfers and all threads are those that serve a card. What a graph would
leave is written beforehand: codes that people spoke, and a tone. The file imports only the service,
so that it measures any checkout: `lab.benchmarks.card.host`.
"""

import gc
import logging
import os
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
import uvicorn
from safetensors.numpy import load_file

from app.engine.ar.graph_runner import GraphRunner
from app.engine.backend import capturers, synthesizer
from app.engine.memory import Memory
from app.engine.nar.graph_runner import NarGraphRunner
from app.engine.serving.scheduler import Scheduler
from app.garbage_collection import freeze_when_ready
from app.main import create_app
from app.server import server_config
from app.settings import Settings
from gpu.kernels import FUSED
from gpu.transfers import Download, Upload
from models.prefill_graphs import PrefillGraphRunner
from samplers.ar.state import HostColumn

PATH: Final = "/threads"
POOL_BYTES: Final = 2 << 30
AR_THREAD: Final = "speech-ar"
"""The name of the thread that samples level 0."""

SLOWNESS: Final = float(os.environ.get("STAND_IN_SLOWNESS", "0"))
"""How long the device takes, as a share of an H200; 0: no time."""

_GIVES_AWAY: Final = bytes(6000)
"""A checksum of more than 5 kB lets go of the lock for two microseconds, as a call into CUDA."""

STRIDE: Final = int(os.environ.get("STAND_IN_STRIDE", "0"))
"""Frames of a burst; 0: as the service has it."""

FRAME_S, ROW_S = 0.00028, 0.0000163
PREFIX_S = 0.0005
CHUNK_S, CHUNK_ROW_S = 0.0025, 0.0002
"""What an H200 takes for a frame and each of its rows, a prefix, a chunk and each of its rows."""


class Costly(NamedTuple):
    """What stands for a function that a device would run.

    Attributes:
        cost_s: What it costs the device.
        leave: Writes what it would leave.
    """

    cost_s: float
    leave: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        """Leave it."""
        self.leave()


class DeviceQueue:
    """A stream of the device: what is queued takes its time, one after the other."""

    def __init__(self) -> None:
        self.until_s = 0.0

    def add(self, cost_s: float) -> None:
        """Queue work of so many seconds."""
        self.until_s = max(self.until_s, time.perf_counter()) + SLOWNESS * cost_s


class Counts:
    """What is counted while the service runs; each is written by one thread alone."""

    def __init__(self) -> None:
        self.numbers: Counter[str] = Counter()
        self.reading = False  # whether the AR thread reads a prefix

    def call(self) -> None:
        """Count a call into CUDA of level 0's step, and give the interpreter's lock away."""
        if threading.current_thread().name == AR_THREAD and not self.reading:
            self.numbers["calls"] += 1
        zlib.crc32(_GIVES_AWAY)


COUNTS: Final = Counts()
QUEUES: Final = {"level 0": DeviceQueue(), "sound": DeviceQueue()}


class StandInCapturer:
    """Takes the place of `gpu.graphs.Recorder`."""

    def __init__(self, *_: Any, priority: int = -1, **__: Any) -> None:
        self.failed: list[str] = []
        self._queue = QUEUES["level 0" if priority < 0 else "sound"]

    def capture(self, function: Callable[[], None]) -> Callable[[], None]:
        """Return what costs the device time, and leaves what was written beforehand."""
        owner = getattr(getattr(function, "func", None), "__self__", None)
        found = function if isinstance(function, Costly) else Costly(PREFIX_S)
        if isinstance(owner, GraphRunner):
            found = _step_of(owner, function)
        queue = self._queue

        def replay() -> None:
            COUNTS.call()
            queue.add(found.cost_s)
            found()

        return replay


@cache
def _script() -> np.ndarray[Any, Any]:
    """Return level 0 of the voices' prompts."""
    found: list[np.ndarray[Any, Any]] = []
    for path in sorted(Path("weights", "voices").glob("*.codes.safetensors")):
        found += [codes[:, 0] for codes in load_file(path).values() if codes.ndim == 2]
    return np.concatenate(found).astype(np.float64)


def _step_of(batch: GraphRunner, function: Any) -> Costly:
    """Return what stands for a step of a batch that is being made."""
    (rows,) = function.args
    sampled = batch._results.codes
    if "sample" not in function.func.__name__:
        return Costly(FRAME_S + ROW_S * rows)

    script = _script()

    def sample() -> None:
        began = time.thread_time_ns()
        table = batch.table
        numbers, held = table.numbers.numpy()[:rows], table.lengths.numpy()[:rows]
        limits = np.maximum(numbers[:, HostColumn.LIMIT] // 3, 1)
        begins = (numbers[:, HostColumn.KEY] & 0xFFFF) * 7 + numbers[:, HostColumn.ATTEMPT] * 31
        for results in sampled.numpy():
            codes, ends = script[(begins + held) % len(script)], held >= limits
            results[:rows, 0] = np.where(ends, batch.model.config.stop_token, codes)
            results[:rows, 1:] = -1.0, 0.0
            held += (numbers[:, HostColumn.ACTIVE] == 1) & ~ends
        COUNTS.numbers["frames"] += len(sampled)
        COUNTS.numbers["rows"] += len(sampled) * int((numbers[:, HostColumn.ACTIVE] == 1).sum())
        COUNTS.numbers["own_ns"] += time.thread_time_ns() - began

    return Costly(len(sampled) * (FRAME_S + ROW_S * rows), sample)


def _chunk(self: NarGraphRunner, results: torch.Tensor, frames: int, *, light: bool) -> Costly:
    """Stand for `NarGraphRunner._function`."""
    del light
    codes = frames * self._model.config.levels
    results[:, :codes] = torch.from_numpy(np.resize(_script(), codes).astype(np.float32))
    tone = 0.2 * np.sin(np.arange(results.shape[1] - codes) * 0.05)
    results[:, codes:] = torch.from_numpy(tone.astype(np.float32))
    return Costly(CHUNK_S + CHUNK_ROW_S * len(results))


def install() -> None:
    """Have the service find a device of this kind on a machine that has none."""
    make: Any = GraphRunner.__init__
    send, fetch, wait = Upload.send, Download.fetch, Download.wait
    read, step = PrefillGraphRunner.__call__, Scheduler._step

    def made(self: GraphRunner, model: Any, *sizes: Any) -> None:
        *others, _ = sizes  # what is not captured would compute
        model.transformer.kernels = FUSED
        make(self, model, *others, StandInCapturer().capture)

    def sent(self: Upload, numbers: Any) -> None:
        COUNTS.call()
        send(self, numbers)

    def fetched(self: Any, *most: int) -> int:
        began = time.thread_time_ns()
        ticket = fetch(self, *most)
        if threading.current_thread().name == AR_THREAD:  # a device copies by itself
            COUNTS.numbers["own_ns"] += time.thread_time_ns() - began
        COUNTS.call()
        COUNTS.call()  # the copy, and its event
        queue = QUEUES["level 0" if threading.current_thread().name == AR_THREAD else "sound"]
        self.__dict__.setdefault("due_s", {})[ticket] = queue.until_s
        return ticket

    def waited(self: Any, ticket: int) -> Any:
        COUNTS.call()
        if (left_s := self.due_s[ticket] - time.perf_counter()) > 0:
            time.sleep(left_s)
        return wait(self, ticket)

    def prefixes_read(self: PrefillGraphRunner, *given: Any) -> Any:
        COUNTS.reading = here = threading.current_thread().name == AR_THREAD
        try:
            return read(self, *given)
        finally:
            COUNTS.reading = COUNTS.reading and not here

    def stepped(self: Scheduler, batch: Any, jobs: Any) -> None:
        step(self, batch, jobs)
        COUNTS.numbers["steps"] += 1

    for owner, replaced in (
        (capturers, {"GraphCapturer": StandInCapturer}),
        (synthesizer, {"memory_of": lambda model, *_: Memory(model, POOL_BYTES)}),
        (GraphRunner, {"__init__": made} | ({"stride": STRIDE} if STRIDE else {})),
        (Scheduler, {"_step": stepped}),
        (NarGraphRunner, {"_function": _chunk}),
        (
            PrefillGraphRunner,
            {"_function": lambda *_, **__: Costly(PREFIX_S), "__call__": prefixes_read},
        ),
        (Upload, {"send": sent}),
        (Download, {"fetch": fetched, "wait": waited}),
    ):
        for name, function in replaced.items():
            setattr(owner, name, function)


def used() -> dict[str, float]:
    """Return the processor seconds of each thread and of the process, and what was counted."""
    found: dict[str, float] = {}
    for thread in threading.enumerate():
        if thread.ident is not None:
            name = thread.name.split("_")[0]
            own_s = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
            found[name] = found.get(name, 0.0) + own_s
    found[AR_THREAD] -= COUNTS.numbers["own_ns"] / 1e9
    process_s = time.process_time() - COUNTS.numbers["own_ns"] / 1e9
    return found | {"process": process_s} | dict(COUNTS.numbers)


class _ToldServer(uvicorn.Server):
    """Prints its URL once it listens."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        print(f"http://{host}:{port}", flush=True)


def main() -> None:
    """Serve until interrupted."""
    torch.set_num_threads(1)
    install()
    settings = Settings()
    logging.basicConfig(level=settings.log_level.upper())
    app = create_app(settings)
    freeze_when_ready(app.state.services.engine)

    @app.get(PATH, include_in_schema=False)
    async def threads() -> dict[str, float]:
        return used()

    gc.collect()
    _ToldServer(server_config(app, settings)).run()


if __name__ == "__main__":
    main()
