"""What reading a text costs grows with its length alone, whatever its characters are.

Work is counted, not timed: the lines of our own code that run, where a loop on one line counts once
a turn. A text twice as long may cost a little over twice as much.
"""

# ruff: noqa: RUF001 - characters of every class

import sys
from contextlib import suppress
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any, Final

import pytest

from models.text import TextError
from tests.models.text.reading import reading

CHARS: Final = 800
MOST_GROWTH: Final = 2.6
MOST_STEP_LINES: Final = 350  # a character, of one step: between two steps others have their turn

CLASSES: Final = [
    *("0", "５", "Ⅷ", "½", "²", "¹", "①", "I", "IV ", "a", "A", "é", "e\u0301", "ﬃ", "℡"),
    *("word ", " x", "A. ", "a1", "1a ", "π ", "1.1", "1,", "1-", "1:", "1/", "1e5 ", "123456789 "),
    *("(a ", "[a ", "a) ", '"a ', "'a ", "a-", "a—", "a… ", "a, ", "a! ", "&a ", "😀a ", "_a "),
    *("x² ", "why.² ", "why[12] ", "10⁵ ", "\n- a", "\n1. a", "\n1) 5", "\n+ a", "\n| a | b |"),
    *("\n# a", "\n> a", "`a` ", "**a** ", "[a](b.c) ", "http://a.b/c ", "a/b.com/", "a@b.com "),
    *("&amp;", "a&rsquo;", "&#8217;a", "$a$ ", "$5 ", "\\(x\\) ", "$$x$$ ", "\\a ", "a\\", "a$"),
    *("<b>a", "<p>a", "a<!-- b -->", "[[a]] ", "[pause:1s] a ", "Name: a\n", "a-\n", "```\na\n"),
]  # fmt: skip


class Work:
    """Counts the lines of `models.text` that run."""

    def __init__(self) -> None:
        self.lines = 0
        self._ours: dict[CodeType, bool] = {}

    def __enter__(self) -> "Work":
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, _: str, __: Any) -> Any:
        code = frame.f_code
        if code not in self._ours:
            self._ours[code] = "models/text" in code.co_filename
        return self._line if self._ours[code] else None

    def _line(self, _: FrameType, event: str, __: Any) -> Any:
        self.lines += event == "line"
        return self._line


def lines_of(text: str) -> tuple[int, int]:
    """Return how many lines run to read a text, and the most between two of its steps."""
    steps = [0]
    with Work() as work, suppress(TextError):
        for _ in reading(max_phonemes=100).prepared(text, language="en", max_chars=len(text)):
            steps.append(work.lines)
    steps.append(work.lines)
    return work.lines, max(later - sooner for sooner, later in pairwise(steps))


@pytest.mark.slow
@pytest.mark.parametrize("unit", CLASSES, ids=ascii)
def test_reading_twice_as_much_of_a_character_costs_twice_as_much(unit: str) -> None:
    half, _ = lines_of((unit * CHARS)[: CHARS // 2])
    whole, step = lines_of((unit * CHARS)[:CHARS])
    assert step < MOST_STEP_LINES * CHARS
    count = CHARS
    while whole >= MOST_GROWTH * half + 20 * CHARS and count < 4 * CHARS:
        count *= 2  # the shorter one is cut in fewer windows than a whole one
        half = whole
        whole, _ = lines_of((unit * count)[:count])
    assert whole < MOST_GROWTH * half + 20 * CHARS
