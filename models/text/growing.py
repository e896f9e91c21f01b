"""A text that comes bit by bit, as somebody types it or a language model writes it.

What can be spoken is split off as soon as it is certain: after a sentence, a paragraph or a pause,
once what follows cannot change that any more. So the pieces depend on the text and on the flushes,
never on how the text was cut into packets. The borders are those of `split`, or fewer: where
"St." may be a saint or the end of a sentence, the text waits for more.
"""

# ruff: noqa: RUF001 - marks and quotes of several scripts

import re
from typing import Final

from models.text.normalise.vocabulary import (
    ABBREVIATIONS,
    MIDWAY,
    OPENERS,
    REFERENCES,
    STREETS,
    TITLES,
)

PATIENCE_CHARS: Final = 400
"""How far a quotation or bracket is searched for its end before it is taken for a mere sign."""

_BORDER: Final = re.compile(
    r"(?P<pause>\[pause:[\d.]{1,13}m?s\])\s*(?=\S)"
    r"|(?P<mark>[.!?…]+)(?P<closing>[\"')\]}”’»]*)(?P<space>\s+)"
    r"(?=(?P<opening>[\"'(\[{“‘«]*)(?P<next>\w*)(?P<after>.?))"
    r"|(?P<wide>[。！？]+[」』》）)”\"]*)\s*(?=[^\s。！？」』》）)”\"])"
    r"|(?P<paragraph>\n[ \t\r]*\n)\s*(?=\S)",
    re.IGNORECASE | re.DOTALL,
)
_PAUSE: Final = re.compile(r"\[pause:[\d.]{1,13}m?s\]\s*", re.IGNORECASE)
_LONGEST_PAUSE: Final = len("[pause:123456.123456ms]")
_PARAGRAPH: Final = re.compile(r"\n[ \t\r]*\n")
_LAST_WORD: Final = re.compile(r"[\w.]+$")
_INITIALS: Final = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]|[A-HJ-Za-z]")
_CLOSERS: Final = {'"': '"', "“": "”", "(": ")", "[": "]"}


class _Undecided(Exception):
    """What follows decides, and has not come yet."""


class GrowingText:
    """A text that comes in packets and leaves in pieces."""

    def __init__(self) -> None:
        self._text = ""
        self._given = 0

    def append(self, text: str) -> list[str]:
        """Add to the end and return the pieces that are now certain."""
        self._text = (self._text + text).lstrip()
        pieces = []
        while cut := _first_border(self._text):
            end, start = cut
            pieces.append(self._text[:end])
            self._text = self._text[start:].lstrip()
        self._given += len(pieces)
        return pieces

    def flush(self) -> list[str]:
        """Return what is left as a piece, whether or not it is a whole sentence.

        What has nothing to speak waits for what follows.
        """
        if not _speakable(self._text):
            return []
        piece, self._text = self._text.rstrip(), ""
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


def _first_border(text: str) -> tuple[int, int] | None:
    """Return where the first piece ends and the rest starts, or None if that is not certain."""
    try:
        for match in _BORDER.finditer(text):
            end = _end(match)
            if not _speakable(text[:end]) or (not match["pause"] and not _ends(match, end)):
                continue
            return _with_pauses(text, end, match.end())
    except _Undecided:
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
        _Undecided: What follows decides.
    """
    if match["paragraph"]:
        return True
    if match["mark"]:
        if not match["after"] and not match["next"]:
            raise _Undecided  # nothing but space, or openings
        if _PARAGRAPH.search(match["space"]):
            return True
        if match["opening"] != "[" and _goes_on(match):
            return False
    return not _enclosed(match.string, end)


def _goes_on(match: re.Match[str]) -> bool:
    """Tell whether the sentence goes on: "Stop!" he said. Well... maybe. Dr. Who.

    Raises:
        _Undecided: The next word is not whole yet.
    """
    mark, upcoming = match["mark"], match["next"]
    word = _LAST_WORD.search(match.string[: match.start()])
    before = word[0] if word else ""
    if match["closing"] or mark.endswith(("..", "…")):
        return upcoming[:1].islower() and not match["opening"]
    if mark != ".":
        return False
    if before in TITLES:
        return True
    if before.lower() in REFERENCES and upcoming[:1].isdigit():
        return True
    if before in MIDWAY and (upcoming[:1].islower() or upcoming[:1].isdigit()):
        return True
    if before in ABBREVIATIONS or before in STREETS or _INITIALS.fullmatch(before):
        if not match["after"]:
            raise _Undecided
        return upcoming not in OPENERS
    return False


def _enclosed(text: str, place: int) -> bool:
    """Tell whether a place is inside a quotation or brackets, which close before long.

    Raises:
        _Undecided: They are open still, and what follows may close them.
    """
    start = max((match.end() for match in _PARAGRAPH.finditer(text, 0, place)), default=0)
    closers: list[str] = []
    depth = None
    for at, character in enumerate(text[start : place + PATIENCE_CHARS], start):
        if at == place:
            depth = len(closers)
            if not depth:
                return False
        if closers and character == closers[-1]:
            closers.pop()
            if depth is not None and not closers:
                return True
        elif character in _CLOSERS:
            closers.append(_CLOSERS[character])
    if len(text) - place >= PATIENCE_CHARS or _PARAGRAPH.search(text, place):
        return False
    raise _Undecided


def _with_pauses(text: str, end: int, start: int) -> tuple[int, int]:
    """Let the pauses that follow a sentence belong to it.

    Raises:
        _Undecided: There may be one more.
    """
    while match := _PAUSE.match(text, start):
        end, start = start + len(match[0].rstrip()), match.end()
    rest = text[start : start + _LONGEST_PAUSE]
    if not rest or (rest[0] == "[" and "]" not in rest and len(rest) < _LONGEST_PAUSE):
        raise _Undecided
    return end, start


def _speakable(text: str) -> bool:
    return any(map(str.isalnum, _PAUSE.sub("", text)))
