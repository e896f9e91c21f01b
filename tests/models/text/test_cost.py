"""What somebody writes to hurt costs what the text is long; borders are those of the slow rules.

Processor time of this thread is compared, which other processes do not lengthen: a text four times
as long may cost eight times as much. With rules that looked at a text once a border, or at a run
once a character of it, the texts here took sixteen times as much.
"""

import math
import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.text import TextError, normalise
from models.text.front_end import MOST_WRITTEN
from models.text.incremental.borders import BORDER, PAUSE, continues, is_list_number, piece_end
from models.text.incremental.enclosure import PARAGRAPH, PATIENCE_CHARS, Undecided, _Open
from models.text.incremental.text import GrowingText, _starts_line, _with_pauses, pieces
from models.text.normalise.rule import rule
from models.text.normalise.symbols import LAYOUT
from models.text.source import Rewritten, TooMuchWrittenError
from tests.models.text.incremental.test_text import SENTENCES, WORDS
from tests.models.text.reading import prepare

CHARS = 2048
LEAST_S = 0.002  # below it the clock's own grain is seen


def repeated(unit: str, chars: int) -> str:
    return (unit * chars)[:chars]


def with_borders(run: str, chars: int) -> str:
    return repeated(run, chars // 2) + repeated("b. ", chars // 2)


UNITS = [
    *("a", "1", "…", ".", ",", "-", "—", "'", '"', "(", "[", "<", "@", "#", "/", ":", "*", "$"),
    *(" ", "\n", "\t", "a. ", "1. ", "1,", "1-", "1/", "1:", "a@", "a-", "a.b", "@a", "www.", "<a"),
    *("(a", "'a", "a'", "111,", "+1 ", "1.1.", "St. ", "a St. The ", "e.g. ", "5 km ", "12:30 "),
    *("\n- ", "\n1. ", ":-) ", "½", "≈", "√", "[pause:1s]", "[[a]] ", "w ", "A.", "(a! ", "((a! "),
    *(
        '"a! ',
        "'a! ",
        "a\n\n",
        "。",
        "。」",
        "a。",
        "[pause:",
        "[[",
        "]]",
        "{",
        "](http:",
        "\ue000",
    ),
]
TEXTS: dict[str, Callable[[int], str]] = {
    **{repr(unit): partial(repeated, unit) for unit in UNITS},
    "a long word, and initials": lambda chars: (
        "a" * (2 * chars // 3) + " " + repeated("b. ", chars // 3)
    ),
    "a word, dots and a word": lambda chars: "a" + "…" * (chars - 2) + "b",
    **{
        f"{run!r} and borders": partial(with_borders, run)
        for run in ("'", "(", '"', "[[", "<a ", "…", "\n", "x")
    },
}
WRITTEN: dict[str, Callable[[int], str]] = {
    **{repr(unit): partial(repeated, unit) for unit in ("a.", "a-", " ", "\t", "a@", "'")},
    **{repr(unit): partial(repeated, unit) for unit in ("http://a", "x .", "<a", "...x")},
    "dots of an address": lambda chars: "http://" + "." * chars + "x",
}


def cpu_s(work: Callable[[], object]) -> float:
    began_s = time.thread_time()
    work()
    return time.thread_time() - began_s


def grows_no_faster(work: Callable[[str], object], text: Callable[[int], str], chars: int) -> bool:
    """Tell whether all of ``chars`` cost at most eight times a quarter; noise is retried."""
    quarter_s = whole_s = math.inf
    for _ in range(4):
        quarter_s = min(quarter_s, cpu_s(lambda: work(text(chars // 4))))
        whole_s = min(whole_s, cpu_s(lambda: work(text(chars))))
        if whole_s < 8 * max(quarter_s, LEAST_S):
            return True
    return False


def by_letters(text: str) -> list[str]:
    growing = GrowingText()
    return [piece for letter in text for piece in growing.append(letter)] + growing.end()


def read(text: str) -> None:
    with suppress(TextError):
        prepare(text)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_cutting_costs_what_a_text_is_long(text: Callable[[int], str]) -> None:
    assert grows_no_faster(pieces, text, CHARS)
    assert grows_no_faster(by_letters, text, CHARS)


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_reading_costs_what_a_text_is_long(text: Callable[[int], str]) -> None:
    assert grows_no_faster(read, text, CHARS)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from([*UNITS, "x", "! "]), min_size=1, max_size=4).map("".join))
def test_no_mixture_costs_more(unit: str) -> None:
    assert grows_no_faster(pieces, partial(repeated, unit), 2 * CHARS)


@pytest.mark.slow
@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_writing_out_costs_what_a_text_is_long(text: Callable[[int], str]) -> None:
    assert grows_no_faster(normalise, text, 20 * CHARS)


# The rules once more, each candidate looked at from the beginning of the text.

_PAUSE = rule(PAUSE + r"\s*", "", re.IGNORECASE)


def slow_pieces(text: str) -> list[str]:
    """Return the pieces of a text that is there as a whole."""
    found: list[str] = []
    left, line_start = text.lstrip(), True
    while cut := slow_cut(left, line_start):
        end, start = cut
        found.append(left[:end].rstrip())
        line_start = _starts_line(left, end, start)
        left = left[start:].lstrip()
    if slow_speakable(left):
        return [*found, left.rstrip()]
    return found or ([left] if left else [])


def slow_cut(text: str, line_start: bool) -> tuple[int, int] | None:
    try:
        for match in BORDER.finditer(text):
            end = piece_end(match)
            if slow_speakable(text[:end]) and slow_border(match, end, line_start):
                return _with_pauses(text, end, match.end())
    except Undecided:
        pass
    return None


def slow_border(match: re.Match[str], end: int, line_start: bool) -> bool:
    text = match.string
    opened = text.rfind("[[", 0, end)
    if opened >= 0 and not 0 <= text.find("]]", opened) < end:
        if text.find("]]", end) < 0:
            raise Undecided
        return False
    if match["pause"]:
        return True
    if is_list_number(match, 0, at_line_start=line_start):
        return False
    if match["mark"] and not match["after"] and not match["next"]:
        raise Undecided
    if match["paragraph"] or (match["mark"] and PARAGRAPH.search(match["space"])):
        return True
    if match["mark"] and match["opening"] != "[" and continues(match, complete=True):
        return False
    return not slow_enclosed(text, end)


def slow_speakable(text: str) -> bool:
    for pattern, spoken in (_PAUSE, *LAYOUT):
        text = pattern.sub(spoken, text)
    return any(map(str.isalnum, text))


def slow_enclosed(text: str, place: int) -> bool:
    """Tell whether what is open at a place is closed soon: read every character."""
    text += " "  # nothing follows
    start = max((match.end() for match in PARAGRAPH.finditer(text, 0, place)), default=0)
    now = _Open()
    for at in range(start, place):
        now.read(text, at)
    now.lasting = len(now.closers)
    paragraph = PARAGRAPH.search(text, place)
    end = paragraph.start() if paragraph else len(text)
    for at in range(place, min(end, place + PATIENCE_CHARS)):
        before = now.lasting
        if not before:
            return False
        if now.read(text, at) and now.lasting < before:
            return True
    return False


MORE = [
    "5. ",
    "2) ",
    "He left. ",
    "no. 7 ",
    "St. ",
    "'Go. Now.' ",
    "\n\n",
    "\n",
    "[[",
    "(",
    ")",
    " ",
]
mixtures = st.lists(st.sampled_from([*SENTENCES, *WORDS, *MORE]), max_size=30)


@pytest.mark.slow
@settings(deadline=None, max_examples=600)
@given(mixtures.map(" ".join) | mixtures.map("".join))
def test_the_pieces_are_those_of_the_slow_rules(text: str) -> None:
    assert pieces(text, layout=False) == slow_pieces(text)


@pytest.mark.parametrize("sign", ["√", "1234567890 "])
def test_a_text_that_gets_too_long_is_refused_while_it_is_written_out(sign) -> None:
    text = Rewritten.of(repeated(sign, CHARS), MOST_WRITTEN * CHARS)
    written = 0

    def write(match: re.Match[str]) -> str:
        nonlocal written
        written += 1
        return match[0] * (MOST_WRITTEN * 4)

    with pytest.raises(TooMuchWrittenError):
        text.sub(re.compile(r"\S"), write)
    assert written < CHARS // 3
    with pytest.raises(TextError, match=f"at most {MOST_WRITTEN * CHARS} are spoken"):
        prepare(repeated(sign, CHARS), max_chars=CHARS)
