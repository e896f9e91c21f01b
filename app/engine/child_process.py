"""A child process that calls functions for its parent, and is started again if it is gone.

The functions are those of a table that the child makes when it is told what of. Loads without
torch, so that a process can be started before its parent has imported anything that takes long:
both then import at the same time.

Every answer has a deadline. A child that misses it is killed: it was stopped, or a call does not
end. Which of the two it was is told by the processor time that it used.
"""

import atexit
import hashlib
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from app.engine.errors import EndedWorker, Loss, WorkerLost
from app.imports import gc_paused

MOST_REMEMBERED = 256
"""Calls that ended the process and are refused from then on."""

DEADLINE_S: Final = 10.0
"""Seconds within which a process answers, or shows by its processor time that it computes."""

_HOW = {
    "ended": "is gone",
    "stopped": "did nothing for many seconds and was killed",
    "starved": "got on too slowly and was killed",
    "slow": "took too long for an answer and was killed",
}

log = logging.getLogger(__name__)

Table = Mapping[str, Callable[..., Iterable[Any]]]
"""Functions by name; what each yields is made when it is asked for."""

_LOOK_S = 1.0  # between two looks at a process that is waited for
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a process may take for one answer, and what is done with a call that ended it."""

    answer_s: float = DEADLINE_S  # seconds for an answer, however much is computed for it
    idle_s: float = DEADLINE_S  # seconds in which nothing is computed at all
    # Whether a call in which the process ended is made once more: something else may have ended it
    again: bool = True


LOAD: Final = Limits(answer_s=float("inf"), idle_s=60.0)
"""A table takes as long as its files take, which may come over a network."""


class ChildProcess:
    """A child process with a table of functions. One thread at a time."""

    def __init__(
        self, name: str, table: str, *, nice: int = 0, limits: Limits | None = None
    ) -> None:
        self.name = name
        self._table = table
        self._nice = nice
        self.limits = limits or Limits()
        self._loads: tuple[object, ...] = ()
        self.keys = count()  # of calls
        # Digests of calls that are not made again -> how each ended the process
        self.refused: OrderedDict[bytes, WorkerLost] = OrderedDict()
        self.generation = 0  # how many times it was started
        self._is_ready = False
        self._lost = False
        self._closed = False
        self._waits_since_s: float | None = None  # for an answer, by `time.monotonic`
        self._process, self._pipe = self._start()

    @property
    def silent_s(self) -> float:
        """Seconds for which an answer has been waited for; 0 if none is. Any thread may ask."""
        since_s = self._waits_since_s
        return 0.0 if since_s is None else monotonic() - since_s

    def refuse(self, digest: bytes, lost: WorkerLost) -> None:
        """Note that a call is not made again, and how it ended the process."""
        self.refused[digest] = lost
        if len(self.refused) > MOST_REMEMBERED:
            self.refused.popitem(last=False)

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
        if self._closed:
            raise WorkerLost(f"the process {self.name} is closed")
        if self._lost or not self._process.is_alive():
            self.restart()
        if self._is_ready:
            return
        try:
            self.receive(LOAD)
        except WorkerLost:
            self.restart()
            self.receive(LOAD)
        except BaseException:
            self._lost = True
            raise
        self._is_ready = True

    def restart(self) -> None:
        """Start the process again, without waiting for it; no-op once it was closed."""
        if self._closed:
            return
        log.warning("the process %s is gone: it is started again", self.name)
        self._end()
        self._process, self._pipe = self._start()
        self.load(*self._loads)

    def iterate(self, name: str, *args: object, **more: object) -> "RemoteIterator":
        """Return an iterator over what a function yields, each item made when it is asked for."""
        return RemoteIterator(self, (name, args, more))

    def iterate_with(self, content: bytes, name: str, *args: object) -> "RemoteIterator":
        """Iterate as `iterate`; the bytes are the first argument, and are never copied here."""
        return RemoteIterator(self, (name, args, {}), content)

    def close(self) -> None:
        """End the process for good."""
        self._closed = True
        self._end()

    def send(self, verb: str, key: int, content: object = None) -> None:
        """Send a message."""
        # Plain pickle: torch's own would share each small tensor through a file descriptor.
        self.send_bytes(pickle.dumps((verb, key, content)))

    def send_bytes(self, message: bytes) -> None:
        """Send bytes as they are: a message, or what belongs to the one before."""
        try:
            self._pipe.send_bytes(message)
        except BlockingIOError as stopped:  # nothing was read for `DEADLINE_S`
            raise self._gone("stopped") from stopped
        except OSError as error:
            raise self._gone("ended") from error

    def receive(self, limits: Limits | None = None) -> Any:
        """Return the next answer, or raise it if it is an exception.

        Raises WorkerLost if the process ended, or was killed as it did not answer in time.
        """
        self._waits_since_s = monotonic()
        try:
            self._wait(limits or self.limits)
            answer, error = pickle.loads(self._pipe.recv_bytes())
        except BlockingIOError as stopped:  # amid an answer
            raise self._gone("stopped") from stopped
        except (EOFError, OSError) as gone:
            raise self._gone("ended") from gone
        finally:
            self._waits_since_s = None
        if error is not None:
            raise error
        return answer

    def _wait(self, limits: Limits) -> None:
        """Wait until an answer begins, or raise WorkerLost once the process is taken to hang."""
        began_s = computed_s = None
        waited_s = idle_s = 0.0  # in looks: a parent that was stopped itself has looked at nothing
        while not self._pipe.poll(_LOOK_S):
            now_s = _processor_s(self.pid)
            began_s = now_s if began_s is None else began_s
            waited_s += _LOOK_S
            idle_s = idle_s + _LOOK_S if now_s == computed_s else 0.0
            computed_s = now_s
            # The first look has none before it to compare with.
            if now_s is not None and idle_s >= limits.idle_s - _LOOK_S:
                raise self._gone("stopped")
            if waited_s >= limits.answer_s:
                used_s = 0.0 if now_s is None or began_s is None else now_s - began_s
                # Not while others had the processors, then what it was asked for takes too long.
                raise self._gone("slow" if used_s > (waited_s - _LOOK_S) / 2 else "starved")

    def _gone(self, how: Loss) -> WorkerLost:
        """Note that the process is of no use any more; return how it went."""
        self._lost = True  # the pipe ends before the operating system reports the process
        if how == "ended":
            self._process.join(_LOOK_S)
        lost = WorkerLost(f"the process {self.name} {_HOW[how]}", how, self._process.exitcode)
        self._process.kill()
        return lost

    def _end(self) -> None:
        atexit.unregister(self._process.kill)
        self._pipe.close()
        self._process.kill()  # it keeps nothing that is worth waiting for
        self._process.join()

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
        _set_timeouts(ours, DEADLINE_S)
        # A parent that exits without `close` would wait for it for ever.
        atexit.register(process.kill)
        return process, ours


class RemoteIterator(Iterator[Any]):
    """The answers to one call, in order; to be closed.

    If the process is gone, it is started again and called once more; the answers that were given
    already are left out, as the same call has the same ones. A call that the process ended twice
    in is given up and refused from then on: it may be the reason. So is one that takes too long,
    and with `Limits.again` off one that the process ended in once. One that only got on too slowly,
    or whose process was stopped twice, is given up and not refused.
    """

    def __init__(
        self, worker: ChildProcess, call: tuple[object, ...], content: bytes | None = None
    ) -> None:
        self._worker = worker
        self._call = pickle.dumps(call)
        self._content = content
        self._fed: list[object] = []
        self._generation = self._key = 0  # of the process that has it
        self._tasks_sent = 0
        self._lost_one = False
        digest = hashlib.sha256(self._call)
        digest.update(content or b"")
        self._digest = digest.digest()
        if (before := worker.refused.get(self._digest)) is not None:
            raise EndedWorker(f"the same ended the process {worker.name} before", before)
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
                    for _ in range(self._tasks_sent):
                        self._ask()
                answer = self._ask()
                self._tasks_sent += 1
                return answer

    def close(self) -> None:
        """Have the process forget the call."""
        if self._generation == self._worker.generation:
            with suppress(WorkerLost):
                self._worker.send("close", self._key)

    def _begin(self) -> None:
        generation = self._worker.generation
        self._key = next(self._worker.keys)
        self._worker.send("iterate", self._key, (self._call, self._content is not None))
        if self._content is not None:
            self._worker.send_bytes(self._content)
        for args in self._fed:
            self._worker.send("feed", self._key, args)
        self._generation = generation

    def _ask(self) -> Any:
        self._worker.send("next", self._key)  # if this fails, the process ended in another call
        try:
            return self._worker.receive()
        except WorkerLost as lost:
            innocent = lost.how in {"stopped", "starved"}
            again = lost.how == "stopped" or (lost.how != "slow" and self._worker.limits.again)
            if again and not self._lost_one:
                self._lost_one = True
                raise
            if not innocent:
                self._worker.refuse(self._digest, lost)
            self._worker.restart()  # for those that follow
            raise EndedWorker(f"{lost}, and the call is given up", lost) from lost


class _Child:
    """What runs in the process: answers the messages of `ChildProcess`."""

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
                    call, *first = content
                    name, args, more = pickle.loads(call)
                    self._calls[key] = iter(self._table[name](*first, *args, **more))
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
    with gc_paused():
        child = _Child(getattr(import_module(module), name))
    with suppress(EOFError, OSError):
        while True:
            verb, key, content = pickle.loads(pipe.recv_bytes())
            if verb == "iterate":
                call, is_followed = content
                content = (call, pipe.recv_bytes()) if is_followed else (call,)
            answer = child.handle(verb, key, content)
            if answer is not None:
                pipe.send_bytes(pickle.dumps(answer))


def _processor_s(pid: int | None) -> float | None:
    """Return the seconds of processor that all threads of a process used; None if unknown."""
    try:
        # The second field is the name in brackets, which may have blanks and brackets itself.
        fields = Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()
    except OSError:  # gone, or a system without it
        return None
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _set_timeouts(pipe: Connection, timeout_s: float) -> None:
    """Have reading and writing of a pipe fail with BlockingIOError after so many seconds."""
    limit = struct.pack("ll", int(timeout_s), 0)
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, limit)


class ModelWorkers(NamedTuple):
    """The processes of a model that were started before it is loaded."""

    sound: ChildProcess | None = None
    text: ChildProcess | None = None


def text_worker() -> ChildProcess:
    """Start the process that reads texts."""
    # Where processors are scarce, speech that has begun goes before texts. With 10 a short text
    # waited up to a quarter of a second for others.
    return ChildProcess("speech-text", "app.engine.reading:table", nice=5)


def audio_worker() -> ChildProcess:
    """Start the process that makes the sound."""
    # A model that makes an utterance in one piece may compute long for it on a small machine.
    return ChildProcess(
        "speech-audio", "app.engine.nar.process:table", limits=Limits(answer_s=60.0)
    )


def recording_worker() -> ChildProcess:
    """Start the process that reads recordings."""
    return ChildProcess(
        "speech-recordings",
        "app.engine.recordings:table",
        nice=5,
        limits=Limits(again=False),
    )
