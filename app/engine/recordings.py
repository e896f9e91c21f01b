"""Recordings read in a process of their own, which has limits of memory and processor time.

A file of some hundred bytes may have libav allocate gigabytes for its index, and one of some
megabytes may take it minutes. That is not known before it happens, and what happens then ends the
process that it happens in. Loads without torch and NumPy: the process sets limits first.
"""

import logging
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.engine.child_process import DEADLINE_S, ChildProcess, Table, recording_worker
from app.engine.errors import EndedWorker, InvalidRequest, Unavailable, WorkerLost

if TYPE_CHECKING:
    from models.voices.recording import Recording

MEMORY_BYTES: Final = 400 << 20
"""Address space that may be taken beside that of the libraries, some 200 MB."""

_NO_MEMORY = 77  # exit code
_RETRY_AFTER_S = 2
_SLOW = f"it takes more than {DEADLINE_S:g} s to read"
_LARGE = "it takes too much memory to read, as a huge index or many tracks do"
_FATAL = "it ends the process that reads it: it is damaged, or was made to do so"
_INSTEAD = "; save it as WAV or FLAC, with sound alone, and send that"

log = logging.getLogger(__name__)


ReadRecording = Callable[[bytes, float | None], "Recording"]
"""As `models.voices.recording.read_recording`."""


def table() -> Table:
    """Return the function of the process, which has its limits from now on."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # address space for a thread of each processor
    import av  # noqa: F401
    import soxr  # noqa: F401

    from models.voices.recording import read_recording

    return limited_table(read_recording)


def limited_table(read: ReadRecording) -> Table:
    """Return a function that reads recordings, in a process that has its limits from now on."""
    _limit(resource.RLIMIT_CORE, 0)
    if taken := _address_space():
        _limit(resource.RLIMIT_AS, taken + MEMORY_BYTES)

    def limited_read(content: bytes, start_s: float | None) -> "Iterator[Recording]":
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + DEADLINE_S) + 1)
        try:
            yield read(content, start_s)
        except MemoryError:
            os._exit(_NO_MEMORY)  # what libav holds then is given back by nothing else

    return {"read": limited_read}


class RecordingProcess:
    """Reads recordings in another process, which is started with the first. One thread at a time.

    What ends the process is given up and refused from then on; the next has a fresh process.
    """

    def __init__(self, worker: ChildProcess | None = None) -> None:
        self.worker = worker

    @property
    def silent_s(self) -> float:
        """Seconds for which the process has been waited for. Any thread may ask."""
        return 0.0 if self.worker is None else self.worker.silent_s

    def read(self, content: bytes, start_s: float | None = None) -> "Recording":
        """Read a recording; see `models.voices.recording.read_recording`.

        Raises InvalidRequest if it cannot be used, Unavailable if that is not its own fault.
        """
        from models.voices.recording import RecordingError

        try:
            return self._read(content, start_s)
        except RecordingError as error:
            reason = str(error)
        except EndedWorker as error:
            if error.lost.how in {"stopped", "starved"}:
                message = "the process that reads recordings does not get on"
                raise Unavailable(message, retry_after_s=_RETRY_AFTER_S) from error
            log.warning("a recording of %d bytes: %s", len(content), error)
            reason = _reason(error.lost) + _INSTEAD
        raise InvalidRequest(f"the audio cannot be used: {reason}", param="file")

    def close(self) -> None:
        """End the process for good."""
        if self.worker is not None:
            self.worker.close()

    def _read(self, content: bytes, start_s: float | None) -> "Recording":
        if self.worker is None:
            self.worker = recording_worker()
            self.worker.load()
        self.worker.ready()  # before the content is sent, which would have to wait for it
        with closing(self.worker.iterate_with(content, "read", start_s)) as answers:
            found: Recording = next(answers)
            return found


def _reason(lost: WorkerLost) -> str:
    """Return what is wrong with a recording that ended its process."""
    if lost.how == "slow" or lost.exit_code == -signal.SIGXCPU:
        return _SLOW
    return _LARGE if lost.exit_code == _NO_MEMORY else _FATAL


def _limit(kind: int, most: int) -> None:
    """Lower a limit of this process; what the system does not know or allow stays as it is."""
    with suppress(OSError, ValueError):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(
            kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
        )


def _address_space() -> int:
    """Return the bytes of address space of this process; 0 if unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()
