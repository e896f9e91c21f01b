"""Faults that are put into a running server from outside, in its own process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from models.codecs.encodec import EncodecStream
from models.valle import Valle

Call = Callable[..., Any]


class WorkerKilled(BaseException):
    """Nothing that catches an `Exception` catches this: the thread ends."""


@dataclass(frozen=True)
class Fault:
    """One thing that breaks, once.

    Attributes:
        name: In words.
        owner: The class whose method breaks.
        method: Its name.
        happens: Takes the call's place: the method as it was, and its arguments.
        level: Of the method's last argument, where only one level breaks.
        after_calls: How many go well before.
        hits: How many speeches may be hit, the others must not notice; None is all that run.
    """

    name: str
    owner: type
    method: str
    happens: Call
    level: int | None = None
    after_calls: int = 0
    hits: int | None = 1


def no_numbers(original: Call, *args: Any) -> Any:
    """Let the first row of a result be no numbers."""
    result = original(*args).clone()
    result[0] = torch.nan
    return result


def raises(error: BaseException) -> Call:
    """Return what raises an error in place of a call."""

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
        EncodecStream,
        "push",
        raises(RuntimeError("broken on purpose")),
        after_calls=4,
    ),
    Fault("the codec gives NaN", EncodecStream, "push", no_numbers, after_calls=4),
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
        EncodecStream,
        "push",
        raises(WorkerKilled("on purpose")),
        after_calls=4,
        hits=None,
    ),
)


@contextmanager
def injected(fault: Fault) -> Iterator[threading.Event]:
    """Let it break once; the event tells whether it did."""
    original, calls, happened = getattr(fault.owner, fault.method), count(), threading.Event()

    def instead(*args: Any, **kwargs: Any) -> Any:
        meant = fault.level is None or args[-1] == fault.level
        if meant and not happened.is_set() and next(calls) >= fault.after_calls:
            happened.set()
            return fault.happens(original, *args, **kwargs)
        return original(*args, **kwargs)

    setattr(fault.owner, fault.method, instead)
    try:
        yield happened
    finally:
        setattr(fault.owner, fault.method, original)
