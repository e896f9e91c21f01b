"""How far the words of a sentence that is being written are certain: read so whatever follows.

Words of letters are, once the next word begins: until then they may go on, or be the last. A
number waits for the words behind it, as "$5" may be "$5 million" or "5 p.m.". Anything else, such
as a full stop, an abbreviation, a quotation or markup, waits for the end of its sentence.
"""

# ruff: noqa: RUF001 - apostrophes

import re
from itertools import chain
from typing import Final

from models.text.normalise import vocabulary

_TOKEN: Final = re.compile(r"(?P<token>\S+)(?P<space>[ \t]*)")
_WORD: Final = re.compile(r"(?:I|A|[A-Z]?[a-z]+)(?:['’][a-z]+)?(?:-[a-z]+)*,?")
_NUMBER: Final = re.compile(r"\$?\d{1,3}(?:,\d{3}|\d)*,?")
_FARTHEST: Final = 1000  # characters: each packet has a sentence looked at from its beginning
_BEHIND_NUMBER: Final = 3
"""Words behind a number that no longer belong to it."""

_TABLES: Final = (
    vocabulary.TITLES, vocabulary.STREETS, vocabulary.ABBREVIATIONS, vocabulary.MIDWAY,
    vocabulary.SHORT_MONTHS, vocabulary.DAYS, vocabulary.UNITS, vocabulary.CURRENCIES,
    vocabulary.ELIDED,
)  # fmt: skip
_COMMON: Final = frozenset({"a", "I", "A", "Sun", "Sat", "Wed", "May", "ed", "temp", "Co"})
_ABBREVIATED: Final = frozenset(chain.from_iterable(_TABLES)) - _COMMON


def certain_end(text: str) -> int:
    """Return the end of the first words of an incomplete sentence that are certain."""
    end = 0
    waiting = 0  # words that a number before them still waits for
    for match in _TOKEN.finditer(text[:_FARTHEST]):
        token = match["token"]
        begun = text[match.end() :][:1]
        if not match["space"] or not begun.isalnum():  # it may go on, have marks, or be the last
            break
        bare = token.rstrip(",")
        if _NUMBER.fullmatch(token):
            waiting = _BEHIND_NUMBER
        elif _WORD.fullmatch(token) and bare not in _ABBREVIATED:
            waiting = max(0, waiting - 1)
        else:
            break
        if not waiting:
            end = match.end("token")
    # What the last word is may depend on a line's end behind it.
    return end if "\n" not in text[:end] else 0
