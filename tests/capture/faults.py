"""Mistakes that a graph forgives, seeded to see that a test finds them."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import pytest


class Fault(NamedTuple):
    """A function, some of its source, and what stands there instead."""

    function: Callable[..., Any]
    right: str
    wrong: str

    def seed(self, patch: pytest.MonkeyPatch) -> None:
        function: Any = inspect.unwrap(self.function)
        source = Path(inspect.getfile(function)).read_text(encoding="utf-8")
        own = inspect.getsource(function)
        assert self.right in own
        wrong = source.replace(own, own.replace(self.right, self.wrong))
        found = _within(compile(wrong, "a fault", "exec"))
        (code,) = (one for one in found if one.co_qualname == function.__qualname__)
        patch.setattr(function, "__code__", code)


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _within(one)
