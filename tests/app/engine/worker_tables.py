"""Tables of functions for child processes of tests. Loads quickly, so without torch."""

import errno
import os
import resource
import signal
from collections.abc import Callable, Iterator, Mapping
from time import sleep
from typing import Any

import av
import numpy as np

from app.engine.recordings import limited_table
from models.config import ModelConfig
from models.text import FrontEnd
from models.voices.recording import Recording, read_recording


def table(first: int = 0) -> Mapping[str, Callable[..., Any]]:
    """Functions of a process, some of which end it."""

    def numbers(count: int) -> Iterator[int]:
        yield from range(first, first + count)

    def ends(after: int, *_: object) -> Iterator[int]:
        yield from range(after)
        os.kill(os.getpid(), signal.SIGKILL)

    def fails() -> None:
        raise KeyError("on purpose")

    def slow() -> Iterator[bytes]:
        sleep(0.3)
        yield bytes(10**7)

    def add(one: int, other: int) -> Iterator[int]:
        yield one + other

    return {"numbers": numbers, "ends": ends, "fails": fails, "slow": slow, "add": add}


def recordings_table() -> Mapping[str, Callable[..., Any]]:
    """The process of recordings; some files say what they do to it."""

    def obeyed(content: bytes, start_s: float | None) -> Recording:
        word, _, number = content[:20].decode("latin-1").partition(" ")
        match word:
            case "memory":
                np.ones(1 << 30)  # 8 GB
            case "libav":
                raise av.error.MemoryError(errno.ENOMEM, "libav was given no more")
            case "processor":
                used_s = resource.getrusage(resource.RUSAGE_SELF).ru_utime
                resource.setrlimit(resource.RLIMIT_CPU, (int(used_s) + 1, -1))
                loop()
            case "loop":
                loop()
            case "signal":
                os.kill(os.getpid(), int(number))
            case "exit":
                os._exit(0)
        return read_recording(content, start_s)

    def loop() -> None:
        while True:
            pass

    return limited_table(obeyed)


def ending_table(config: ModelConfig) -> Mapping[str, Callable[..., Any]]:
    """The text process of a reader that one text ends."""
    front_end = FrontEnd(config)

    def prepared(text: str, **how: Any) -> Iterator[Any]:
        if "abracadabra" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        return front_end.prepared(text, **how)

    return {"prepared": prepared, "words": front_end.words}
