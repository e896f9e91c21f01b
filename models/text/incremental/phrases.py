"""Where a sentence that is too long is cut: where speech pauses, into parts of about one length.

Each place between two words has a cost: least behind the marks of clauses, more before conjunctions
and prepositions, most behind an article or within a number or a name. The cuts are those of least
cost in all, found by dynamic programming; the cost is linear in the length of the text.
"""

# ruff: noqa: RUF001, SIM905 - dashes of every kind; lists of words

import re
from collections.abc import Container, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from models.text.normalise.rule import any_of
from models.text.normalise.vocabulary import NUMBER_WORDS

_TOKEN: Final = re.compile(r"[^\s—–]*[—–]+(?=[^\s—–])|\S+")
_CLOSING: Final = "\"')]”’"
_JOINING: Final = frozenset("and or but nor yet so".split())
_OPENING: Final = frozenset(
    "because although though while when whenever where wherever which who whom whose that if "
    "unless until whether once whereas".split()
)
_PREPOSITIONS: Final = frozenset(
    "in on at with from by for to into through over under about between without within during "
    "against among toward towards across behind beyond around near above below upon onto off "
    "after before since as like along inside outside throughout despite except than of".split()
)
_AUXILIARIES: Final = frozenset(
    "is are was were am be been being has have had will would can could shall should may "
    "might must do does did isn't aren't wasn't weren't hasn't haven't hadn't won't wouldn't "
    "can't couldn't shouldn't don't doesn't didn't".split()
)
_SUBJECTS: Final = frozenset("i he she it we you they there this these those".split())
_DEPENDENT: Final = frozenset(
    "the a an my your his her its our their no every each some any all both this these those "
    "another such very too more most less least quite rather really not never also only just "
    "even i we he she they what how mister missus miz doctor saint".split()
) | _JOINING | _OPENING | _PREPOSITIONS | _AUXILIARIES  # fmt: skip
"""Words that lean on the next one: no cut behind them."""
_LEANING: Final = frozenset(
    "him them us me it not n't too either ago away up down out back".split()
)
"""Words that lean on the one before."""
_MARKS_OF_ADDRESSES: Final = frozenset("dot slash dash colon at underscore".split())

_SCALES: Final = frozenset(["thousand", "million", "billion", "trillion"])

# Within a number, a name, or a number and what it counts there is no border.
_NUMBER: Final = rf"(?:{any_of(NUMBER_WORDS)})(?:-\w+)?"
_JOINED: Final = (
    rf"(?:{'|'.join(sorted(_JOINING | _OPENING | _PREPOSITIONS | _MARKS_OF_ADDRESSES))})\b"
)
_TOGETHER: Final = re.compile(
    rf"\b{_NUMBER}(?P<number>\s+and\s+(?={_NUMBER}\b)|\s+(?!{_JOINED}))"
    rf"|\b(?i:minus|plus|number|page|pages|chapter|section|figure|volume|version)(?P<sign>\s+)"
    rf"(?={_NUMBER}\b)"
    r"|\b[A-Z][\w'.]*(?P<name>\s+(?:of\s+(?:the\s+)?|de\s+|van\s+|von\s+)?)(?=[A-Z])"
    rf"|\b[A-Z]\w+(?P<date>,?\s+)(?={_NUMBER}\b)"
)

_INNER = 30.0
_WRITTEN_AS_ONE = 6.0
_LEANS = 5.5
_SCALED: Final = 3.5  # within a number behind its thousands, within an address before a mark
_BARE = 2.2  # between any two words
_PHRASE = 3.4  # behind the first of a phrase
_PER_PART: Final = 0.35
_FEW: Final = (0.0, 3.5, 3.5, 2.0)  # for a part of so many words: it falls where nothing ends
_UNEVEN: Final = 2.0  # times the square of what a part lacks of half the limit


class Cut(NamedTuple):
    """A place where a sentence is cut."""

    end: int  # of the part before
    start: int  # of the part after
    pauses: bool  # whether a mark of a clause is there


class _Place(NamedTuple):
    cut: Cut
    cost: float


def cuts(line: str, joined: Container[int], lengths: Sequence[float]) -> list[Cut]:
    """Return where to cut a line into parts; the list is empty if there is but one word.

    ``lengths`` are how much of a line is before each index and at its end, about, where 1 is what a
    part may have. A word that has more is a part of its own. ``joined`` are indices of spaces
    within what was written as one word.
    """
    if lengths[len(line)] <= 1:
        return []  # one part, which no cut makes cheaper
    tokens = [match.span() for match in _TOKEN.finditer(line)]
    places = _places(line, tokens, joined)
    best: list[tuple[float, int]] = [(0.0, 0)]
    for last in range(1, len(tokens) + 1):
        end = tokens[last - 1][1]
        options = []
        for first in range(last - 1, -1, -1):
            share = lengths[end] - lengths[tokens[first][0]]
            if share > 1 and first < last - 1:
                break
            cost = best[first][0] + _PER_PART + _UNEVEN * max(0.0, 0.5 - share) ** 2
            cost += _FEW[last - first] if last - first < len(_FEW) else 0.0
            options.append((cost + (places[first - 1].cost if first else 0.0), first))
        best.append(min(options))
    found = []
    last = len(tokens)
    while (first := best[last][1]) > 0:
        found.append(places[first - 1].cut)
        last = first
    return found[::-1]


def _places(line: str, tokens: Sequence[tuple[int, int]], joined: Container[int]) -> list[_Place]:
    """Return the places between the words of a line."""
    inner = {at for one in _TOGETHER.finditer(line) for at in range(*one.span(one.lastgroup or 0))}
    words = [line[begin:end] for begin, end in tokens]
    places = []
    for number, ((_, end), (start, _)) in enumerate(pairwise(tokens)):
        cost, pauses = border_cost(words[number], words[number + 1], words[number + 2 : number + 3])
        within = number > 0 and words[number - 1].lower() in _DEPENDENT - _AUXILIARIES
        if cost == _BARE and within:
            cost = _PHRASE  # before coffin warehouses
        if end in inner:
            cost = _SCALED if words[number] in _SCALES else _INNER
        elif end in joined:
            address = words[number + 1] in _MARKS_OF_ADDRESSES
            cost = _SCALED if address or words[number] in _SCALES else _WRITTEN_AS_ONE
        places.append(_Place(Cut(end, start, pauses), cost))
    return places


def border_cost(before: str, after: str, then: Sequence[str] = ()) -> tuple[float, bool]:
    """Return the cost of a cut between two words, and whether speech pauses there.

    ``then`` has the word behind the second, if it is known.
    """
    bare = before.rstrip(_CLOSING)
    if not any(map(str.isalnum, after)) and after not in "\ue000":
        return _INNER, False  # a dash belongs to what is before
    if bare.endswith((".", "!", "?", "…", ";", ":", "—", "–")) or after.startswith("("):
        return 0.0, True
    if before.endswith(")"):
        return 0.1, True
    if bare.endswith(","):
        named = before[:1].isupper() and after[:1].isupper()  # Paris, France
        return (0.6 if named else 0.1), True
    left = before.lower()
    right = after.lower().strip(_CLOSING + ",;:.!?—–")
    if left in _DEPENDENT:
        return _LEANS, False
    if left.endswith("ly"):
        return 3.0, False
    if right in _JOINING:
        return 0.7, False
    if right in _OPENING:
        return 0.6, False
    if right in _PREPOSITIONS:
        clause = bool(then) and then[0].lower() in _SUBJECTS
        if clause and right in {"after", "before", "since", "as", "for"}:
            return 0.6, False
        return {"of": 2.2, "than": 1.6, "to": 1.4}.get(right, 1.1), False
    if right in _LEANING:
        return _LEANS, False
    if right in _AUXILIARIES:
        return (_LEANS if left in _SUBJECTS else 1.5), False
    return (1.9 if right.endswith("ly") else _BARE), False
