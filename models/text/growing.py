"""A text that comes bit by bit, as somebody types it or a language model writes it.

What can be spoken is split off as soon as it is certain: after a sentence, a paragraph or a pause,
once what follows cannot change that any more. So the pieces depend on the text and on the flushes,
never on how the text was cut into packets. Where "St." may be a saint or the end of a sentence,
the text waits for more. A text that comes as a whole is cut in the same way (`pieces`), so that
its speech is the same; `split` looks for further borders within a piece.
"""

# ruff: noqa: RUF001 - marks and quotes of several scripts

import re
from itertools import chain
from typing import Final

from models.text.enclosure import PARAGRAPH, Undecided, enclosed
from models.text.normalise.rule import any_of
from models.text.normalise.symbols import LAYOUT
from models.text.normalise.vocabulary import (
    ABBREVIATIONS,
    DAYS,
    MIDWAY,
    MONTHS,
    OPENERS,
    REFERENCES,
    SHORT_MONTHS,
    STREETS,
    TITLES,
    UNITS,
)

_BORDER: Final = re.compile(
    r"(?P<pause>\[pause:[\d.]{1,13}m?s\])\s*(?=\S)"
    r"|(?P<mark>[.!?…]+)(?P<closing>[\"')\]}”’»]*)(?P<space>\s+)"
    r"(?=(?P<opening>[\"'(\[{“‘«]*)(?P<next>\w*)(?P<after>.?))"
    r"|(?P<wide>[。！？]+[」』》）)”\"]*)\s*(?=[^\s。！？」』》）)”\"])"
    r"|(?P<paragraph>\n[ \t\r]*\n)\s*(?=\S)",
    re.IGNORECASE | re.DOTALL,
)
_PAUSE: Final = re.compile(r"\[pause:[\d.]{1,13}m?s\]\s*", re.IGNORECASE)
_ENDS_IN_PAUSE: Final = re.compile(r"\[pause:[\d.]{1,13}m?s\]$", re.IGNORECASE)
_SILENT: Final = re.compile(r"[^\w\[]*")  # marks without a word, before a pause
_LONGEST_PAUSE: Final = len("[pause:123456.123456ms]")
_LAST_WORD: Final = re.compile(r"[\w.]+$")
_ABBREVIATED: Final = re.compile(rf"(?<![\w.])(?:{any_of({**ABBREVIATIONS, **STREETS})})$")
_MEASURE: Final = re.compile(rf"\d[ -]?(?:{any_of(unit.rstrip('.') for unit in UNITS)})(?:/\w+)?$")
_INITIALS: Final = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]|[A-HJ-Za-z]")
# At the beginning of a line, as `normalise` has it, or of what follows a pause.
_LIST_NUMBER: Final = re.compile(
    r"(?P<border>^|\n|\[pause:[\d.]{1,13}m?s\])[ \t]*(?:(?:#{1,6}|[-*•‣])[ \t]+)?\d{1,3}$",
    re.IGNORECASE,
)


_PACKET_CHARS: Final = 4096  # a growing text copies what it still holds at every border


class GrowingText:
    """A text that comes in packets and leaves in pieces."""

    def __init__(self) -> None:
        self._text = ""
        self._given = 0
        self._at_line_start = True

    def append(self, text: str) -> list[str]:
        """Add to the end and return the pieces that are now certain."""
        self._text = (self._text + text).lstrip()
        pieces = []
        while cut := _first_border(self._text, self._at_line_start):
            end, start = cut
            pieces.append(self._text[:end].rstrip())  # space may stand before a paragraph's end
            self._at_line_start = _starts_line(self._text, end, start)
            self._text = self._text[start:].lstrip()
        self._given += len(pieces)
        return pieces

    def flush(self) -> list[str]:
        """Return what is left as a piece, whether or not it is a whole sentence.

        What has nothing to speak waits for what follows.
        """
        if not _speakable(self._text):
            return []
        piece, self._text, self._at_line_start = self._text.rstrip(), "", True
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


def pieces(text: str) -> list[str]:
    """Return the pieces of a whole text."""
    growing = GrowingText()
    packets = (text[at : at + _PACKET_CHARS] for at in range(0, len(text), _PACKET_CHARS))
    return [*chain.from_iterable(map(growing.append, packets)), *growing.end()]


def _first_border(text: str, at_line_start: bool) -> tuple[int, int] | None:
    """Return where the first piece ends and the rest starts, or None if that is not certain.

    Args:
        text: What is left.
        at_line_start: Whether it begins a line.
    """
    try:
        for match in _BORDER.finditer(text):
            end = _end(match)
            if not _speakable(text[:end]) or _in_phonemes(text, end):
                continue
            if match["pause"] or (not _numbers(match, at_line_start) and _ends(match, end)):
                return _with_pauses(text, end, match.end())
    except Undecided:
        pass
    return None


def _end(match: re.Match[str]) -> int:
    if match["pause"]:
        return match.end("pause")
    if match["mark"]:
        return match.end("closing")
    return match.end("wide") if match["wide"] else match.start("paragraph")


def _ends(match: re.Match[str], end: int) -> bool:
    """Tell whether a sentence ends here.

    Raises:
        Undecided: What follows decides.
    """
    if match["paragraph"]:
        return True
    if match["mark"]:
        if not match["after"] and not match["next"]:
            raise Undecided  # nothing but space, or openings
        if PARAGRAPH.search(match["space"]):
            return True
        if match["opening"] != "[" and _goes_on(match):
            return False
    return not enclosed(match.string, end)


def _numbers(match: re.Match[str], at_line_start: bool) -> bool:
    """Tell whether a full stop only follows the number of an item of a list."""
    if match["mark"] != "." or match["closing"] or match["space"].strip(" \t"):
        return False
    number = _LIST_NUMBER.search(match.string[: match.start()])
    if number is None or not (at_line_start or number["border"]):
        return False
    after_opening = match["next"] or match["after"]
    return not after_opening[:1].isdigit() and match["opening"] != "["


def _goes_on(match: re.Match[str]) -> bool:
    """Tell whether the sentence goes on: "Stop!" he said. Well... maybe. Dr. Who.

    Raises:
        Undecided: The next word is not whole yet.
    """
    mark, upcoming = match["mark"], match["next"]
    word = _LAST_WORD.search(match.string[: match.start()])
    before = word[0] if word else ""
    if match["closing"] or mark.endswith(("..", "…")):
        return (upcoming[:1].islower() or upcoming[:1].isdigit()) and not match["opening"]
    if mark != ".":
        return False
    if before in TITLES:
        return True
    if before.lower() in REFERENCES and upcoming[:1].isdigit():
        return True
    if before in MIDWAY or _MEASURE.search(match.string[: match.start()]):
        return upcoming[:1].islower() or upcoming[:1].isdigit()
    if before in DAYS or before in SHORT_MONTHS:
        return _dated(match, weekday=before in DAYS)
    if _ABBREVIATED.search(match.string[: match.start()]) or _INITIALS.fullmatch(before):
        if not match["after"]:
            raise Undecided
        return upcoming not in OPENERS
    return False


def _dated(match: re.Match[str], *, weekday: bool) -> bool:
    """Tell whether a date goes on: Sept. 5. Fri. 5 Mar. Mon. - Fri.

    Raises:
        Undecided: The next word is not whole yet.
    """
    upcoming = match["next"]
    if upcoming[:1].isdigit() or not weekday:
        return upcoming[:1].isdigit()
    if not match["after"]:
        raise Undecided
    return upcoming in MONTHS or upcoming in SHORT_MONTHS or match["after"] in "-–—"


def _in_phonemes(text: str, place: int) -> bool:
    """Tell whether a place is inside inline phonemes.

    Raises:
        Undecided: They have not come to their end.
    """
    start = text.rfind("[[", 0, place)
    if start < 0 or 0 <= text.find("]]", start) < place:
        return False
    if text.find("]]", place) < 0:
        raise Undecided
    return True


def _with_pauses(text: str, end: int, start: int) -> tuple[int, int]:
    """Let the pauses that follow a sentence belong to it.

    Raises:
        Undecided: There may be one more.
    """
    while match := _PAUSE.match(text, _past_marks(text, start)):
        end, start = match.start() + len(match[0].rstrip()), match.end()
    place = _past_marks(text, start)
    rest = text[place : place + _LONGEST_PAUSE]
    if not rest or (rest[0] == "[" and "]" not in rest and len(rest) < _LONGEST_PAUSE):
        raise Undecided
    return end, start


def _past_marks(text: str, place: int) -> int:
    marks = _SILENT.match(text, place)
    return marks.end() if marks else place


def _starts_line(text: str, end: int, start: int) -> bool:
    """Tell whether what comes after a piece begins a line, for those who read it by itself."""
    return "\n" in text[end:start] or bool(_ENDS_IN_PAUSE.search(text[:end]))


def _speakable(text: str) -> bool:
    """Tell whether words are left once the pauses, the tags and the smileys are gone."""
    text = _PAUSE.sub("", text)
    for rule in LAYOUT:
        text = rule.apply(text)
    return any(map(str.isalnum, text))
