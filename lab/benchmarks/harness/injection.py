"""Fault injection into a server that runs in this process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from models.codecs.interface import CodecStream
from models.valle import Valle

Call = Callable[..., Any]


class WorkerKilled(BaseException):
    """Ends a thread: no handler of `Exception` catches it."""


@dataclass(frozen=True)
class Fault:
    """A fault that occurs once."""

    name: str  # for the table
    owner: type  # the class of the method that fails
    method: str  # name of the method
    happens: Call  # called instead, with the original method and its arguments
    level: int | None = None  # only calls whose last argument is this level fail; None: all
    after_calls: int = 0  # number of successful calls before
    hits: int | None = 1  # how many concurrent requests may be affected; None: all of them


def no_numbers(original: Call, *args: Any) -> Any:
    """Return the result with NaN in its first row."""
    result = original(*args).clone()
    result[0] = torch.nan
    return result


def raises(error: BaseException) -> Call:
    """Return a replacement of a call that raises an error."""

    def fail(*_: Any) -> Any:
        raise error

    return fail


FAULTS = (
    Fault("level 0 gives NaN", Valle, "logits", no_numbers, level=0, after_calls=40),
    Fault(
        "a prefix finds no memory",
        Valle,
        "prefix",
        raises(torch.OutOfMemoryError("no memory, on purpose")),
        after_calls=1,
    ),
    Fault(
        "the codec raises",
        CodecStream,
        "push",
        raises(RuntimeError("broken on purpose")),
        after_calls=4,
    ),
    Fault("the codec gives NaN", CodecStream, "push", no_numbers, after_calls=4),
    Fault(
        "the worker of level 0 is killed",
        Valle,
        "logits",
        raises(WorkerKilled("on purpose")),
        level=0,
        after_calls=40,
        hits=None,
    ),
    Fault(
        "the worker of the codec is killed",
        CodecStream,
        "push",
        raises(WorkerKilled("on purpose")),
        after_calls=4,
        hits=None,
    ),
)


@contextmanager
def injected(fault: Fault) -> Iterator[threading.Event]:
    """Inject a fault within the context; the event is set once it has occurred."""
    original, calls, happened = getattr(fault.owner, fault.method), count(), threading.Event()

    def replacement(*args: Any, **kwargs: Any) -> Any:
        matches = fault.level is None or args[-1] == fault.level
        if matches and not happened.is_set() and next(calls) >= fault.after_calls:
            happened.set()
            return fault.happens(original, *args, **kwargs)
        return original(*args, **kwargs)

    setattr(fault.owner, fault.method, replacement)
    try:
        yield happened
    finally:
        setattr(fault.owner, fault.method, original)
