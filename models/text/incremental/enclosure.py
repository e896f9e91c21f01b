"""Detection of quotations and brackets around an index of an incremental text."""

# ruff: noqa: RUF001 - quotes of several kinds

import re
from dataclasses import dataclass, field
from typing import Final

from models.text.normalise.vocabulary import ELIDED

PATIENCE_CHARS: Final = 400
"""How far the end of a quotation or bracket is searched before it is ignored as unbalanced."""

PARAGRAPH: Final = re.compile(r"\n[ \t\r]*\n\s*")
_CLOSERS: Final = {'"': '"', "“": "”", "(": ")", "[": "]"}
_SIGNS: Final = re.compile("[\"“”()\\[\\]'‘’]")
_MAX_DEPTH: Final = 64  # deeper nesting is ignored
_SINGLE: Final = frozenset("'‘’")
_WORD: Final = re.compile(r"\w*")


class Undecided(Exception):
    """The decision depends on text that has not arrived yet."""


@dataclass
class _Open:
    """The quotations and brackets open at some index."""

    # the closing character of each, outermost first
    closers: list[str] = field(default_factory=list)
    lasting: int = 0  # how many have been open since the index in question

    def read(self, text: str, at: int) -> bool:
        """Process a character; return whether it closes a quotation or bracket.

        An open single quote is dropped as soon as it cannot be a quotation's: those contain no
        double quote and end after punctuation.
        """
        character = text[at]
        if character in _SINGLE:
            return self._single(text, at)
        closers = self.closers
        if closers and closers[-1] == "'" and (character == '"' or character in closers):
            self._pop()
        if closers and character == closers[-1]:
            return self._pop()
        if character in _CLOSERS and len(closers) < _MAX_DEPTH:
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
        opens = not before.isalnum() and upcoming[:1].isalpha() and upcoming.lower() not in ELIDED
        if opens and len(self.closers) < _MAX_DEPTH:
            self.closers.append("'")
        return False

    def _pop(self) -> bool:
        self.closers.pop()
        self.lasting = min(self.lasting, len(self.closers))
        return True


class Enclosure:
    """Answers for increasing indices of a text whether they are inside quotations or brackets."""

    def __init__(self) -> None:
        self._read_to = 0
        self._open = _Open()

    def around(self, text: str, place: int, *, complete: bool = False) -> bool:
        """Return whether an index is inside a quotation or brackets that are closed soon after.

        Between calls text may be extended and ``place`` grow; it is not inside a word.
        ``complete``: no text follows. Raises Undecided if they are open and the following text may
        close them.
        """
        text += " " if complete else ""  # what closes at the very end is decided
        self._read(text, place)
        now = _Open(self._open.closers.copy(), len(self._open.closers))
        if not now.lasting:
            return False
        patience = place + PATIENCE_CHARS
        paragraph = PARAGRAPH.search(text, place, patience)  # they do not span paragraphs
        end = paragraph.start() if paragraph else patience
        for sign in _SIGNS.finditer(text, place, end):
            before = now.lasting
            if not before:
                return False
            if now.read(text, sign.start()) and now.lasting < before:
                return True
        if complete or not now.lasting or len(text) >= patience or paragraph:
            return False
        raise Undecided

    def _read(self, text: str, place: int) -> None:
        """Process the text up to an index."""
        start = self._read_to
        for paragraph in PARAGRAPH.finditer(text, start, place):
            self._open = _Open()
            start = paragraph.end()
        for sign in _SIGNS.finditer(text, start, place):
            self._open.read(text, sign.start())
        self._read_to = max(self._read_to, place)
