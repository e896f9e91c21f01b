"""Tables of functions for child processes of tests. Loads quickly, so without torch."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from time import sleep
from typing import Any

from models.config import ModelConfig
from models.text import FrontEnd


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


def ending_table(config: ModelConfig) -> Mapping[str, Callable[..., Any]]:
    """The text process of a reader that one text ends."""
    front_end = FrontEnd(config)

    def prepared(text: str, **how: Any) -> Iterator[Any]:
        if "abracadabra" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        return front_end.prepared(text, **how)

    return {"prepared": prepared, "words": front_end.words}
