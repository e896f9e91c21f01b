"""A normalisation rule: a pattern and its spoken form; patterns that several rules use."""

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

Match = re.Match[str]

INTEGER: Final = r"(?:\d{1,3}(?:,\d{3}){1,9}|\d+)"
NUMBER: Final = rf"(?:{INTEGER}(?:\.\d+)?|\.\d+)"
BLANKS: Final = (
    r"(?<![ \t])[ \t]++"  # only tried at the beginning of a run, so that matching is linear
)
ALONE: Final = r"(?<![\w.,:/-])"  # the beginning of a number that is not part of a longer one


class Rule(NamedTuple):
    """A pattern and its replacement: a template of `re.sub`, or a function of the match."""

    pattern: re.Pattern[str]
    spoken: str | Callable[[Match], str]


def rule(pattern: str, spoken: str | Callable[[Match], str], flags: int = 0) -> Rule:
    """Return a rule for an uncompiled pattern; what a function says is apart from words beside."""
    return Rule(re.compile(pattern, flags), spoken if isinstance(spoken, str) else _apart(spoken))


def _apart(spoken: Callable[[Match], str]) -> Callable[[Match], str]:
    def said(match: Match) -> str:
        words = spoken(match)
        if words == match[0]:
            return words
        before = match.string[match.start() - 1 : match.start()] if match.start() else ""
        after = match.string[match.end() : match.end() + 1]
        first = " " if before.isalnum() and words[:1].isalpha() else ""
        last = " " if after.isalnum() and words[-1:].isalpha() else ""
        return f"{first}{words}{last}"

    return said


def any_of(words: Iterable[str]) -> str:
    """Return a pattern for any of the words, longest first."""
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
