"""A text that comes bit by bit, as somebody types it or a language model writes it.

What can be spoken is split off as soon as it is certain: after a sentence, a paragraph or a pause,
once what follows cannot change that any more. So the pieces depend on the text and on the flushes,
never on how the text was cut into packets. Where "St." may be a saint or the end of a sentence,
the text waits for more. A text that comes as a whole is cut in the same way (`pieces`), so that
its speech is the same; `split` looks for further borders within a piece.

All packets together cost as much as the text is long, whatever is in it: each packet goes on where
the one before stopped, and what is looked at again is at most `_NEAR_CHARS` long, or grew by a
quarter since.
"""

import re
from itertools import chain
from typing import Final

from models.text.incremental.borders import (
    BORDER,
    LONGEST_PAUSE,
    PAUSE,
    goes_on,
    numbers,
    piece_end,
    unfinished,
)
from models.text.incremental.enclosure import PARAGRAPH, Enclosure, Undecided
from models.text.incremental.speakable import Speakable

_PAUSE: Final = re.compile(rf"{PAUSE}\s*+", re.IGNORECASE)
_ENDS_IN_PAUSE: Final = re.compile(rf"{PAUSE}$", re.IGNORECASE)
_SILENT: Final = re.compile(r"[^\w\[]*+")  # marks without a word, before a pause

_NEAR_CHARS: Final = 400
_PACKET_CHARS: Final = 4096  # a growing text copies what it still holds at every border


class GrowingText:
    """A text that comes in packets and leaves in pieces."""

    _text: str
    _searched: int
    _look_again: int

    def __init__(self) -> None:
        self._given = 0
        self._hold("", at_line_start=True)

    def append(self, text: str) -> list[str]:
        """Add to the end and return the pieces that are now certain."""
        self._text = (self._text + text).lstrip()
        pieces: list[str] = []
        if len(self._text) < self._look_again:
            return pieces
        while cut := self._cut():
            end, start = cut
            pieces.append(self._text[:end].rstrip())  # space may stand before a paragraph's end
            starts_line = _starts_line(self._text, end, start)
            self._hold(self._text[start:].lstrip(), at_line_start=starts_line)
        undecided = len(self._text) - self._searched
        self._look_again = len(self._text) + undecided // 4 if undecided > _NEAR_CHARS else 0
        self._given += len(pieces)
        return pieces

    def flush(self) -> list[str]:
        """Return what is left as a piece, whether or not it is a whole sentence.

        What has nothing to speak waits for what follows.
        """
        if not self._speakable.within(self._text, len(self._text)):
            return []
        piece = self._text.rstrip()
        self._hold("", at_line_start=True)
        self._given += 1
        return [piece]

    def end(self) -> list[str]:
        """Return what is left; nothing may follow.

        A text with nothing to speak is given as it is, so that it can be refused.
        """
        pieces = self.flush()
        if not self._given and self._text:
            pieces, self._text = [self._text], ""
        return pieces

    def _hold(self, text: str, *, at_line_start: bool) -> None:
        """Hold the rest of the text, of which nothing was looked at.

        Args:
            text: What is left.
            at_line_start: Whether it begins a line.
        """
        self._text, self._at_line_start = text, at_line_start
        self._speakable, self._enclosure = Speakable(), Enclosure()
        self._phonemes = _Phonemes()
        self._searched = 0  # there is no border before
        self._since = 0  # where the last candidate ended
        self._look_again = 0  # how long the text must be to be worth it

    def _cut(self) -> tuple[int, int] | None:
        """Return where the first piece ends and the rest starts, or None if that is not certain."""
        text = self._text
        # White space at the end decides nothing, but for the first: a word is whole.
        searched_to = len(text.rstrip()) + 1
        for match in BORDER.finditer(text, self._searched, searched_to):
            self._searched = match.start()
            end = piece_end(match)
            try:
                if self._is_border(match, end):
                    return _with_pauses(text, end, match.end())
            except Undecided:
                return None
            self._searched = match.end()
            self._since = match.start() if match["pause"] or match["paragraph"] else end
        self._searched = unfinished(text, self._searched)
        return None

    def _is_border(self, match: re.Match[str], end: int) -> bool:
        """Tell whether a piece ends at a candidate.

        Raises:
            Undecided: What follows decides.
        """
        if not self._speakable.within(self._text, end) or self._phonemes.around(self._text, end):
            return False
        if match["pause"]:
            return True
        if match["mark"] and not match["after"] and not match["next"]:
            raise Undecided  # nothing but space, or openings
        if numbers(match, self._since, at_line_start=self._at_line_start):
            return False
        if match["paragraph"]:
            return True
        if match["mark"]:
            if PARAGRAPH.search(match["space"]):
                return True
            if match["opening"] != "[" and goes_on(match):
                return False
        return not self._enclosure.around(self._text, end)


def pieces(text: str) -> list[str]:
    """Return the pieces of a whole text."""
    growing = GrowingText()
    packets = (text[at : at + _PACKET_CHARS] for at in range(0, len(text), _PACKET_CHARS))
    return [*chain.from_iterable(map(growing.append, packets)), *growing.end()]


class _Phonemes:
    """Where inline phonemes open and close in a text, looked for once."""

    def __init__(self) -> None:
        self._read_to = 0
        self._opens = -1
        self._closes = -1

    def around(self, text: str, place: int) -> bool:
        """Tell whether a place is inside inline phonemes.

        Args:
            text: The one of the calls before, with more at its end.
            place: No earlier than that of the call before.

        Raises:
            Undecided: They have not come to their end.
        """
        opens = text.rfind("[[", max(0, self._read_to - 1), place)
        self._read_to = place
        self._opens = max(self._opens, opens)
        if self._opens < 0:
            return False
        if self._closes < self._opens:
            self._closes = text.find("]]", self._opens)
        if self._closes < 0:
            raise Undecided
        return self._closes >= place


def _with_pauses(text: str, end: int, start: int) -> tuple[int, int]:
    """Let the pauses that follow a sentence belong to it.

    Raises:
        Undecided: There may be one more.
    """
    while match := _PAUSE.match(text, _past_marks(text, start)):
        end, start = match.start() + len(match[0].rstrip()), match.end()
    place = _past_marks(text, start)
    rest = text[place : place + LONGEST_PAUSE]
    if not rest or (rest[0] == "[" and "]" not in rest and len(rest) < LONGEST_PAUSE):
        raise Undecided
    return end, start


def _past_marks(text: str, place: int) -> int:
    marks = _SILENT.match(text, place)
    return marks.end() if marks else place


def _starts_line(text: str, end: int, start: int) -> bool:
    """Tell whether what comes after a piece begins a line, for those who read it by itself."""
    return "\n" in text[end:start] or bool(
        _ENDS_IN_PAUSE.search(text, max(0, end - LONGEST_PAUSE), end)
    )
