"""Whether a place of a text that still grows is inside a quotation or brackets."""

# ruff: noqa: RUF001 - quotes of several kinds

import re
from dataclasses import dataclass, field
from typing import Final

PATIENCE_CHARS: Final = 400
"""How far a quotation or bracket is searched for its end before it is taken for a mere sign."""

PARAGRAPH: Final = re.compile(r"\n[ \t\r]*\n")
_CLOSERS: Final = {'"': '"', "“": "”", "(": ")", "[": "]"}
_SIGNS: Final = re.compile("[\"“”()\\[\\]'‘’]")
_DEEPEST: Final = 64  # brackets within brackets that are told apart
_SINGLE: Final = frozenset("'‘’")
_WORD: Final = re.compile(r"\w*")
# Apostrophes that open nothing.
_ELIDED: Final = frozenset({
    "bout",
    "cause",
    "cept",
    "em",
    "gainst",
    "n",
    "neath",
    "round",
    "til",
    "tis",
    "twas",
    "twere",
})


class Undecided(Exception):
    """What follows decides, and has not come yet."""


@dataclass
class _Open:
    """What is open where a text was read to.

    Attributes:
        closers: What closes each, outermost first.
        lasting: How many were open all the time since `place`.
    """

    closers: list[str] = field(default_factory=list)
    lasting: int = 0

    def read(self, text: str, at: int) -> bool:
        """Read a character; return whether it closes something.

        A single quote is taken for a mere sign as soon as it cannot be a quotation's: these hold
        no double quote, and end after a mark.

        Raises:
            Undecided: What follows tells a quote from an apostrophe.
        """
        character = text[at]
        if character in _SINGLE:
            return self._single(text, at)
        closers = self.closers
        if closers and closers[-1] == "'" and (character == '"' or character in closers):
            self._pop()
        if closers and character == closers[-1]:
            return self._pop()
        if character in _CLOSERS and len(closers) < _DEEPEST:
            closers.append(_CLOSERS[character])
        return False

    def _single(self, text: str, at: int) -> bool:
        before = text[at - 1] if at else " "
        word = _WORD.match(text, at + 1)
        upcoming = word[0] if word else ""
        if at + 1 + len(upcoming) == len(text):
            raise Undecided
        inside_word = before.isalnum() and upcoming
        if inside_word:
            return False
        if self.closers and self.closers[-1] == "'":
            self._pop()
            if before in ".,!?" and not upcoming:
                return True
        opens = not before.isalnum() and upcoming[:1].isalpha() and upcoming.lower() not in _ELIDED
        if opens and len(self.closers) < _DEEPEST:
            self.closers.append("'")
        return False

    def _pop(self) -> bool:
        self.closers.pop()
        self.lasting = min(self.lasting, len(self.closers))
        return True


class Enclosure:
    """What is open in a text, read once from its beginning; asked about one place after another."""

    def __init__(self) -> None:
        """Begin before the first character."""
        self._read_to = 0
        self._open = _Open()

    def around(self, text: str, place: int) -> bool:
        """Tell whether a place is inside a quotation or brackets, which close before long.

        Args:
            text: The one of the calls before, with more at its end.
            place: No earlier than that of the call before, and not amid a word.

        Raises:
            Undecided: They are open still, and what follows may close them.
        """
        self._read(text, place)
        now = _Open(self._open.closers.copy(), len(self._open.closers))
        if not now.lasting:
            return False
        patience = place + PATIENCE_CHARS
        paragraph = PARAGRAPH.search(text, place, patience)  # nothing reaches into another
        end = paragraph.start() if paragraph else patience
        for sign in _SIGNS.finditer(text, place, end):
            before = now.lasting
            if not before:
                return False
            if now.read(text, sign.start()) and now.lasting < before:
                return True
        if not now.lasting or len(text) >= patience or paragraph:
            return False
        raise Undecided

    def _read(self, text: str, place: int) -> None:
        """Read on to a place."""
        start = self._read_to
        for paragraph in PARAGRAPH.finditer(text, start, place):
            self._open, start = _Open(), paragraph.end()
        for sign in _SIGNS.finditer(text, start, place):
            self._open.read(text, sign.start())
        self._read_to = max(self._read_to, place)
