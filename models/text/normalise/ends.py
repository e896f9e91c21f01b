"""Whether the full stop of an abbreviation also ends its sentence: told by what follows.

A small letter never opens a sentence. A capital does, unless the abbreviation is written before
names, or what follows is a known continuation: "5 p.m. Eastern", "the U.S. Army", "Main St.
Station". What is before tells, too: "At 5 p.m." and "Acme Inc." are no sentences.
"""

# ruff: noqa: RUF001 - quotes of several kinds

import re
from typing import Final, NamedTuple

from models.text.normalise.numbers import roman
from models.text.normalise.rule import any_of
from models.text.normalise.vocabulary import (
    ABBREVIATIONS,
    ACRONYMS,
    AFTER_ACRONYMS,
    AFTER_SAINT,
    AFTER_STREETS,
    AFTER_TIMES,
    BEFORE_NAMES,
    BEFORE_SAINT,
    CONNECTING,
    DAYS,
    DETERMINERS,
    LABELLED,
    MIDWAY,
    MONTHS,
    OPENERS,
    PLACING,
    REFERENCES,
    SHORT_BOOKS,
    SHORT_MONTHS,
    STREETS,
    TITLES,
    UNITS,
)

_NEAR_CHARS: Final = 64  # longer than any abbreviation, unit or sequence of initials
_FOLLOWING: Final = re.compile(
    r"(?P<closing>[\"')\]”’]*)(?P<gap>\s*)(?P<opening>[\"'(\[{“‘«]*)(?P<next>\w*(?:['’]\w+)?)"
    r"(?P<after>-?)[ \t]*\n?[ \t]*(?P<second>\w*)"
)
_ABBREVIATED: Final = re.compile(rf"(?<![\w.])(?:{any_of({**ABBREVIATIONS, **STREETS})})$")
_UNIT: Final = any_of(unit.rstrip(".") for unit in UNITS)
_MEASURE: Final = re.compile(rf"\d[ -]?(?:{_UNIT})(?:/\w+)?$")
_MEASURES: Final = re.compile(rf"(?:{_UNIT})\Z")
_NUMERAL: Final = re.compile(r"(?=[IVX]{2})X{0,2}(?:IX|IV|V?I{0,3})")
_INITIALS: Final = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]|[A-HJ-Za-z]")
_TIME: Final = re.compile(r"(?:\d*[ap]\.m|\d+[ap]m|[ap]m)")
_FOLLOWED: Final = re.compile(r"\d+\s?ff?")
_CHAPTER: Final = re.compile(r"\s\d{1,3}:\d")
_TITLE: Final = re.compile(r"[ \t]+(?:[A-Z][^.!?\n]{0,60})?+(?P<end>[.!?\n]?)")
_ORDINAL: Final = re.compile(
    r"\d+(?:st|nd|rd|th)|First|Second|Third|Fourth|Fifth|Sixth|Seventh|Eighth|Ninth|Tenth"
)
_SENTENCE: Final = re.compile(r"[.!?…][\"')\]”’]*\s+|\n\s*\n|[\"“(]")
_SMALL: Final = re.compile(r"[a-z]{2,}")
_PHRASE: Final = re.compile(
    r"\W*(?:After|Around|As|At|Before|By|During|For|From|In|Last|Near|Next|On|Since|Through"
    r"|Throughout|Under|Until|With|Within)\b",
)
_MOST_PHRASE: Final = 4  # words of a phrase that opens a sentence: "At about 5 p.m."


class Following(NamedTuple):
    """What follows a full stop."""

    text: str
    at: int  # index behind the full stop
    gap: str
    opening: str
    next: str
    dash: bool  # whether the next word goes on with a dash, or is one
    second: str
    open: bool  # whether text that has not arrived may belong to it
    complete: bool  # whether no text follows


def following(text: str, at: int, *, complete: bool = True) -> Following:
    """Return what follows a full stop before an index."""
    match = _FOLLOWING.match(text, at)
    assert match is not None  # every part may be empty
    dash = bool(match["after"]) or text[match.end("gap") : match.end("gap") + 1] in {*"-–—"}
    return Following(
        text, at, match["gap"], match["opening"], match["next"],
        dash and match.end("gap") < len(text), match["second"],
        not complete and match.end() == len(text), complete,
    )  # fmt: skip


def word_before(text: str, end: int) -> str:
    """Return the word before an index, with the full stops inside it."""
    start = end
    least = max(0, end - _NEAR_CHARS)
    while start > least and (text[start - 1].isalnum() or text[start - 1] in "._"):
        start -= 1
    return text[start:end]


def abbreviates(upcoming: Following) -> bool | None:
    """Return whether a full stop is an abbreviation's and ends no sentence; None if undecided."""
    text = upcoming.text
    at = upcoming.at - 1
    before = word_before(text, at)
    near = max(0, at - _NEAR_CHARS)
    line = text[near : at - len(before)].rpartition("\n")[2]
    if _NUMERAL.fullmatch(before) and not line.strip(" \t*_"):  # II. Methods
        return None if upcoming.open and not upcoming.next else "\n" not in upcoming.gap
    if before in {"I", "V", "X"} and not line.strip(" \t*_#"):
        return _heads(upcoming)
    if before in SHORT_BOOKS and _CHAPTER.match(upcoming.text, upcoming.at):
        return True
    if _FOLLOWED.fullmatch(before):  # 20ff. are missing
        return None if upcoming.open and not upcoming.next else not _ends(upcoming, before)
    if before in {"St", "Dr"}:
        return None if upcoming.open else not (is_street(upcoming) and _ends(upcoming, before))
    if before in TITLES or before.lower() in {"mr", "mrs", "ms", "dr", "prof"}:
        noun = _words(text, at - len(before))[-1:]  # the Dr. He
        if not noun or noun[0].lower() not in DETERMINERS:
            return True
        if not upcoming.next[:1].isupper():
            return True
        return None if upcoming.open else upcoming.next not in OPENERS
    if before.lower() in REFERENCES and _refers(text, at, before, upcoming):
        return None if upcoming.open and upcoming.next[:1].isupper() else True
    measured = before in MIDWAY or bool(_MEASURE.search(text, near, at))
    named = before in DAYS or before in SHORT_MONTHS
    known = _ABBREVIATED.search(text, near, at) or _INITIALS.fullmatch(before)
    if not (measured or named or known or _is_time(text, at, before)):
        return False
    if upcoming.next[:1].islower() and not upcoming.opening:
        return True
    if upcoming.open:
        return None
    if measured:
        return _counts_on(upcoming) if not before.endswith(("°C", "°F", "%")) else False
    if named:
        return _dated(upcoming, before)
    return not _ends(upcoming, before)


def _heads(upcoming: Following) -> bool | None:
    """Return whether a title follows on the line of its numeral: I. The Arrival."""
    found = _TITLE.match(upcoming.text, upcoming.at)
    if found is None or found["end"] in {*".!?"}:
        return False
    return True if found["end"] or upcoming.complete else None


def ends(text: str, at: int) -> bool:
    """Return whether the full stop of an abbreviation, before an index of a text, ends it, too."""
    upcoming = following(text, at)
    if not upcoming.next and not upcoming.opening:
        # A comma may follow, or nothing.
        return not text[at:].strip("\"')]”’ \n\t") if len(text) - at < _NEAR_CHARS else False
    if not upcoming.gap:
        return False
    before = word_before(text, at - 1)
    if upcoming.next[:1].islower():
        return False
    if before in DAYS or before in SHORT_MONTHS:
        return not _dated(upcoming, before)
    if before in MIDWAY or _MEASURE.search(text, max(0, at - _NEAR_CHARS), at - 1):
        return not _counts_on(upcoming)
    return _ends(upcoming, before)


def is_street(upcoming: Following) -> bool:
    """Tell "Oak St. She left" and "5 Ocean Dr." from "see St. Paul" and "Dr. Will Jones"."""
    text = upcoming.text
    saint = text[upcoming.at - 3 : upcoming.at - 1] == "St"
    words = _words(text, upcoming.at - 3)
    last = words[-1].strip("\"'(") if words else ""
    capital = upcoming.next[:1].isupper() and bool(upcoming.gap)
    if _ORDINAL.fullmatch(last):
        return True
    first = len(words) < 2 or words[-2][-1] in ".!?"  # See Dr. Who
    named = last[:1].isupper() and last not in OPENERS and last[-1:].isalnum() and not first
    if not capital:
        return named or (saint and bool(last) and last.lower() not in DETERMINERS)
    if not named:
        return False
    if upcoming.next in OPENERS:
        return True
    if saint and upcoming.next not in AFTER_SAINT:
        return last not in BEFORE_SAINT
    while words and words[-1][:1].isupper():
        words.pop()
    placed = words[-1:] and (words[-1].isdigit() or words[-1] in PLACING)
    return bool(placed) and last not in BEFORE_SAINT and last not in DAYS.values()


def _words(text: str, end: int) -> list[str]:
    """Return the words shortly before an index."""
    return text[max(0, end - _NEAR_CHARS) : end].split()


def _is_time(text: str, at: int, before: str) -> bool:
    """Return whether a word is half of the day behind a figure: 5 p.m, 5pm."""
    if not _TIME.fullmatch(before):
        return False
    return "." in before or before[0].isdigit() or bool(re.search(r"\d\s?$", text[: at - 2][-4:]))


def _refers(text: str, at: int, before: str, upcoming: Following) -> bool:
    """Return whether a number follows: no. 5, Ch. IV."""
    word = upcoming.next
    if word[:1].isdigit():
        said = _words(text, at - len(before))[-1:]
        return not (before == "no" and said and said[0].lower() in _SAYING)
    if word == "I":
        return before.lower() in {"vol", "ch", "chap", "pt", "sec"}
    return word.isupper() and roman(word) > 0


_SAYING: Final = frozenset([
    "said",
    "say",
    "says",
    "answered",
    "answer",
    "replied",
    "is",
    "was",
    "a",
    "course",
    "voted",
    "vote",
])


def _counts_on(upcoming: Following) -> bool:
    """Return whether a measure goes on: 6 ft. 2 in. tall."""
    if not upcoming.next[:1].isdigit() or upcoming.dash:
        return False
    rest = re.sub(r"^[\d.,/½¼¾]+", "", upcoming.next) or upcoming.second
    return not rest or bool(_MEASURES.match(rest))


def _dated(upcoming: Following, before: str) -> bool:
    """Return whether a date continues: Sept. 5. Fri. 5 Mar. Mon. - Fri."""
    word = upcoming.next
    if word[:1].isdigit() or word in MONTHS or word in SHORT_MONTHS or upcoming.dash:
        return True
    if before in DAYS and word in DAYS:
        return True
    return word not in OPENERS and _opens(upcoming)


def _ends(upcoming: Following, before: str) -> bool:
    """Return whether a capital, a figure or an opening mark after an abbreviation opens."""
    word = upcoming.next
    if not upcoming.next and not upcoming.opening:
        return not upcoming.dash
    if word[:1].islower() or "(" in upcoming.opening or "[" in upcoming.opening:
        return False
    if before in BEFORE_NAMES:  # e.g. The
        return False
    if len(before) == 1 and _spelled(upcoming):
        return True
    if word in OPENERS and not (word == "A" and upcoming.dash):
        return True
    if not (word[:1].isupper() or word[:1].isdigit()) or _opens(upcoming):
        return False
    if _TIME.fullmatch(before):
        return word not in AFTER_TIMES and not _dates(upcoming)
    if before in STREETS:
        return word not in AFTER_STREETS and not (word.isupper() and len(word) < 3)
    if before in ABBREVIATIONS and not _INITIALS.fullmatch(before):
        return word not in AFTER_STREETS and word not in ABBREVIATIONS
    if len(before) == 1:
        words = _words(upcoming.text, upcoming.at - 2)
        return bool(words) and words[-1].lower().strip("\"'(") in LABELLED
    letters = before.replace(".", "")
    if letters.upper() in ACRONYMS or len(letters) > 3:
        if word[:1].isdigit():
            return not (letters == "DC" and len(word) == 5)
        return word not in AFTER_ACRONYMS and not upcoming.second[:1].isupper()
    return False  # initials of a name


def _spelled(upcoming: Following) -> bool:
    """Return whether a letter is the last of several that are spelled out: P M."""
    words = _words(upcoming.text, upcoming.at - 2)
    return bool(words) and (words[-1] == "eh" or (len(words[-1]) == 1 and words[-1].isupper()))


def _dates(upcoming: Following) -> bool:
    second = upcoming.second
    return upcoming.next[:1].isdigit() and (
        second in MONTHS or second in SHORT_MONTHS or second in {"of", "hours"}
    )


def _opens(upcoming: Following) -> bool:
    """Return whether what is before only opens a sentence: "At 5 p.m.", "Acme Inc."."""
    text = upcoming.text
    start = max(0, upcoming.at - 2 * _NEAR_CHARS)
    before = text[start : upcoming.at - 1]
    for border in _SENTENCE.finditer(before):
        if not _abbreviated(before, border.start()):
            start = max(start, upcoming.at - 1 - len(before) + border.end())
    phrase = text[start : upcoming.at]
    words = phrase.split()
    if _PHRASE.match(phrase):
        return len(words) <= _MOST_PHRASE
    return not any(
        _SMALL.fullmatch(word.strip(",;:\"'()")) and word not in CONNECTING for word in words
    ) and not any(word[:1].isdigit() for word in words)


def _abbreviated(text: str, at: int) -> bool:
    """Return whether a mark is a full stop of a title, of initials or of an abbreviation."""
    if text[at : at + 1] != ".":
        return False
    word = word_before(text, at)
    return word in TITLES or word in ABBREVIATIONS or bool(_INITIALS.fullmatch(word))
