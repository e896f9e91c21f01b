"""A process of this service beside its main one, and the pipe to it.

Loads without torch, so that a process can be started before the caller has imported anything that
takes long: both then import at the same time.
"""

import atexit
import multiprocessing
import pickle
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

from app.engine.errors import WorkerLost


class Child(NamedTuple):
    """A process that was started, and the pipe to it. One thread at a time."""

    process: SpawnProcess
    pipe: Connection

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            WorkerLost: The process is gone.
        """
        # Plain pickle: torch's own would share each small tensor through a file descriptor.
        content = pickle.dumps(message)
        try:
            self.pipe.send_bytes(content)
        except OSError as error:
            raise self._gone() from error

    def receive(self) -> Any:
        """Return the next answer, or raise it if it is an exception.

        Raises:
            WorkerLost: The process is gone.
        """
        try:
            answer = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._gone() from error
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """End the process."""
        atexit.unregister(self.process.kill)
        self.pipe.close()
        self.process.kill()  # it keeps nothing that is worth waiting for
        self.process.join()

    def _gone(self) -> WorkerLost:
        return WorkerLost(f"the process {self.process.name} is gone")


def start(name: str, serve: Callable[[Connection], None]) -> Child:
    """Start a process; it ends when the pipe does, and with this process.

    Args:
        name: Of the process.
        serve: Called there with its end of the pipe; a function of a module.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), name=name, daemon=True)
    process.start()
    theirs.close()  # so that the pipe ends with the process
    # It ignores SIGTERM, which may be sent to a whole service while it still drains. A caller that
    # exits without `Child.close` would wait for it for ever.
    atexit.register(process.kill)
    return Child(process, ours)
