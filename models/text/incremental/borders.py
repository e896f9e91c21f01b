"""Candidate boundaries of an incremental text, and whether a sentence continues after one.

Candidates are found in one pass and decided by their neighbourhood: the words before, as far as
`models.text.normalise.ends` looks, and what follows. The cost is linear in the length of any text:
quantifiers are possessive, and a run of marks is only tried at its beginning.
"""

# ruff: noqa: RUF001 - marks and quotes of several scripts

import re
from typing import Final

from models.text.incremental.enclosure import Undecided
from models.text.layout.blocks import BULLET
from models.text.normalise.ends import abbreviates, following

PAUSE: Final = r"\[pause:[\d.]{1,13}m?s\]"
VOICE: Final = r"\[voice:[^\[\]\n]{1,200}\]"
RATE: Final = r"\[rate:[\d.]{1,9}\]"
LONGEST_PAUSE: Final = len("[pause:123456.123456ms]")
LONGEST_DIRECTION: Final = len("[voice:]") + 200

_MARK = ".!?…"
_CLOSING = "\"')\\]}”’»"
_WIDE = "。！？"
_WIDE_CLOSING = '」』》）)”"'
BORDER: Final = re.compile(
    rf"(?P<pause>{PAUSE})\s*+(?=\S)"
    rf"|(?<![{_MARK}])(?P<mark>[{_MARK}]++)(?P<closing>[{_CLOSING}]*+)(?P<space>\s++)"
    r"(?=(?P<opening>[\"'(\[{“‘«]*+)(?P<next>\w*+)(?P<after>.?))"
    rf"|(?<![{_WIDE}])(?P<wide>[{_WIDE}]++[{_WIDE_CLOSING}]*+)\s*+(?=[^\s{_WIDE}{_WIDE_CLOSING}])"
    r"|(?P<paragraph>\n[ \t\r]*+\n)\s*+(?=\S)",
    re.IGNORECASE | re.DOTALL,
)
"""A candidate boundary. Only white space may follow the last character searched."""

_TAIL: Final = frozenset("".join((_MARK, _CLOSING.replace("\\", ""), _WIDE, _WIDE_CLOSING)))

_DIRECTIONS: Final = frozenset({"pause", "voice", "rate"})
# At the beginning of a line, as in `normalise`, or after a pause.
_LIST_NUMBER: Final = re.compile(
    rf"(?P<border>^|\n|(?i:{PAUSE}))[ \t]*+(?:(?:#{{1,6}}|{BULLET})[ \t]++)?[*_]{{0,3}}"
    r"(?:\d{1,3}|[a-zA-HJ-Z]|[ivx]{2,4})\\?$"
)


def resume_at(text: str, searched: int) -> int:
    """Return the index where the search must resume once more text has arrived."""
    place = len(text)
    while place > searched and (text[place - 1] in _TAIL or text[place - 1].isspace()):
        place -= 1
    return max(searched, place - LONGEST_PAUSE)


def piece_end(match: re.Match[str]) -> int:
    """Return the end of the piece before a candidate boundary."""
    if match["pause"]:
        return match.end("pause")
    if match["mark"]:
        return match.end("closing")
    return match.end("wide") if match["wide"] else match.start("paragraph")


def is_list_number(match: re.Match[str], since: int, *, at_line_start: bool) -> bool:
    """Return whether a candidate is the full stop after the number of a list item.

    ``since`` is the end of the previous candidate, which no number spans.
    """
    if match["mark"] != "." or match["closing"] or match["space"].strip(" \t"):
        return False
    number = _LIST_NUMBER.search(match.string, since, match.start())
    if number is None or not (at_line_start or number["border"]):
        return False
    directed = match["opening"].endswith("[") and match["next"].lower() in _DIRECTIONS
    return not directed


def continues(match: re.Match[str], *, complete: bool = False) -> bool:
    """Return whether the sentence continues: "Stop!" he said. Well... maybe. Dr. Who.

    ``complete``: no text follows. Raises Undecided if what follows decides.
    """
    mark = match["mark"]
    upcoming = match["next"]
    if match["closing"] or mark.endswith(("..", "…")):
        return (upcoming[:1].islower() or upcoming[:1].isdigit()) and not match["opening"]
    if mark != ".":
        return False
    abbreviated = abbreviates(following(match.string, match.end("mark"), complete=complete))
    if abbreviated is None:
        raise Undecided
    return abbreviated
