"""A child process that calls functions for its parent, and is started again if it is gone.

The functions are those of a table that the child makes when it is told what of. Loads without
torch, so that a process can be started before its parent has imported anything that takes long:
both then import at the same time.
"""

import atexit
import hashlib
import logging
import multiprocessing
import os
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from itertools import count
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

from app.engine.errors import EndedWorker, WorkerLost
from app.imports import uncollected

MOST_REMEMBERED = 256
"""Calls that ended the process and are refused from then on."""

log = logging.getLogger(__name__)

Table = Mapping[str, Callable[..., Iterable[Any]]]
"""Functions by name; what each yields is made when it is asked for."""


class Worker:
    """A child process with a table of functions. One thread at a time."""

    def __init__(self, name: str, table: str, *, nice: int = 0) -> None:
        self.name, self._table, self._nice = name, table, nice
        self._loads: tuple[object, ...] = ()
        self.keys = count()  # of calls
        self.refused = deque[bytes](maxlen=MOST_REMEMBERED)  # digests of calls
        self.generation = 0  # how many times it was started
        self._is_ready, self._lost = False, False
        self._process, self._pipe = self._start()

    @property
    def pid(self) -> int | None:
        """Identifier of the process."""
        return self._process.pid

    def load(self, *args: object) -> None:
        """Have the process make its table of these arguments; `ready` waits for it."""
        self._loads = args
        with suppress(WorkerLost):  # found out by `ready`
            self.send("load", 0, args)

    def ready(self) -> None:
        """Wait until the table is made; start the process again if it is gone."""
        if self._lost or not self._process.is_alive():
            self.restart()
        if self._is_ready:
            return
        try:
            self.receive()
        except WorkerLost:
            self.restart()
            self.receive()
        except BaseException:
            self._lost = True
            raise
        self._is_ready = True

    def restart(self) -> None:
        """Start the process again, without waiting for it."""
        log.warning("the process %s is gone: it is started again", self.name)
        self.close()
        self._process, self._pipe = self._start()
        self.load(*self._loads)

    def iterate(self, name: str, *args: object, **more: object) -> "Answers":
        """Return an iterator over what a function yields, each item made when it is asked for."""
        return Answers(self, (name, args, more))

    def close(self) -> None:
        """End the process."""
        atexit.unregister(self._process.kill)
        self._pipe.close()
        self._process.kill()  # it keeps nothing that is worth waiting for
        self._process.join()

    def send(self, verb: str, key: int, content: object = None) -> None:
        """Send a message."""
        # Plain pickle: torch's own would share each small tensor through a file descriptor.
        message = pickle.dumps((verb, key, content))
        try:
            self._pipe.send_bytes(message)
        except OSError as error:
            raise self._gone() from error

    def receive(self) -> Any:
        """Return the next answer, or raise it if it is an exception."""
        try:
            answer, error = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError) as gone:
            raise self._gone() from gone
        if error is not None:
            raise error
        return answer

    def _gone(self) -> WorkerLost:
        self._lost = True  # the pipe ends before the operating system reports the process
        return WorkerLost(f"the process {self.name} is gone")

    def _start(self) -> tuple[SpawnProcess, Connection]:
        self.generation += 1
        self._is_ready = self._lost = False
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_serve, args=(theirs, self._table, self._nice), name=self.name, daemon=True
        )
        # Ctrl-C, and a SIGTERM to a whole service, are for the parent, which may still drain and
        # then ends the pipe. The child inherits the mask, so that none interrupts its imports.
        resource_tracker.ensure_running()  # whose own start would unblock them again
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()  # so that the pipe ends with the process
        # A parent that exits without `close` would wait for it for ever.
        atexit.register(process.kill)
        return process, ours


class Answers(Iterator[Any]):
    """The answers to one call, in order; to be closed.

    If the process is gone, it is started again and called once more; the answers that were given
    already are left out, as the same call has the same ones. A call that the process ended twice
    in is given up and refused from then on: it may be the reason.
    """

    def __init__(self, worker: Worker, call: tuple[object, ...]) -> None:
        self._worker, self._call = worker, pickle.dumps(call)
        self._fed: list[object] = []
        self._generation = self._key = 0  # of the process that has it
        self._given, self._ended_one = 0, False
        self._digest = hashlib.sha256(self._call).digest()
        if self._digest in worker.refused:
            raise EndedWorker(f"the same ended the process {worker.name} before")
        with suppress(WorkerLost):  # found out by the first answer
            self._begin()

    def feed(self, *args: object) -> None:
        """Call ``feed`` of the iterator in the process."""
        self._fed.append(args)
        if self._generation == self._worker.generation:
            with suppress(WorkerLost):
                self._worker.send("feed", self._key, args)

    def __next__(self) -> Any:
        """Return the next answer."""
        while True:
            self._worker.ready()
            with suppress(WorkerLost):
                if self._generation != self._worker.generation:
                    self._begin()
                    for _ in range(self._given):
                        self._ask()
                answer = self._ask()
                self._given += 1
                return answer

    def close(self) -> None:
        """Have the process forget the call."""
        if self._generation == self._worker.generation:
            with suppress(WorkerLost):
                self._worker.send("close", self._key)

    def _begin(self) -> None:
        generation, self._key = self._worker.generation, next(self._worker.keys)
        self._worker.send("iterate", self._key, self._call)
        for args in self._fed:
            self._worker.send("feed", self._key, args)
        self._generation = generation

    def _ask(self) -> Any:
        self._worker.send("next", self._key)  # if this fails, the process ended in another call
        try:
            return self._worker.receive()
        except WorkerLost as error:
            if self._ended_one:
                self._worker.refused.append(self._digest)
                self._worker.restart()  # for those that follow
                raise EndedWorker(f"{error}, for the second time in the same call") from error
            self._ended_one = True
            raise


class _Child:
    """What runs in the process: answers the messages of `Worker`."""

    def __init__(self, make: Callable[..., Table]) -> None:
        self._make = make
        self._table: Table = {}
        self._calls: dict[int, Any] = {}
        self._failed: dict[int, Exception] = {}  # by call; raised by its next answer

    def handle(self, verb: str, key: int, content: Any) -> tuple[Any, Exception | None] | None:
        """Act on a message; return its answer and its error, or None if it has no answer."""
        try:
            if key in self._failed and verb != "close":
                raise self._failed[key]
            match verb:
                case "load":
                    self._table = self._make(*content)
                    return True, None
                case "next":
                    return next(self._calls[key]), None
                case "feed":
                    self._calls[key].feed(*content)
                case "close":
                    self._calls.pop(key, None)
                    self._failed.pop(key, None)
                case _:
                    name, args, more = pickle.loads(content)
                    self._calls[key] = iter(self._table[name](*args, **more))
        except Exception as error:
            if not isinstance(error, StopIteration):
                # The traceback does not travel with an exception, its notes do.
                error.add_note("".join(traceback.format_tb(error.__traceback__)))
            if verb in {"load", "next"}:
                return None, error
            self._failed[key] = error
        return None


def _serve(pipe: Connection, table: str, nice: int) -> None:
    """Answer messages until the pipe ends."""
    os.nice(nice)
    module, _, name = table.partition(":")
    with uncollected():
        child = _Child(getattr(import_module(module), name))
    with suppress(EOFError, OSError):
        while True:
            answer = child.handle(*pickle.loads(pipe.recv_bytes()))
            if answer is not None:
                pipe.send_bytes(pickle.dumps(answer))


class ModelWorkers(NamedTuple):
    """The processes of a model that were started before it is loaded."""

    sound: Worker | None = None
    text: Worker | None = None


def text_worker() -> Worker:
    """Start the process that reads texts."""
    # Where processors are scarce, speech that has begun goes before texts. With 10 a short text
    # waited up to a quarter of a second for others.
    return Worker("speech-text", "app.engine.reading:table", nice=5)


def sound_worker() -> Worker:
    """Start the process that makes the sound."""
    return Worker("speech-sound", "app.engine.sound.process:table")
