"""Rules for abbreviations, initials and roman numerals, and for their full stops."""

import re
from typing import Final

from models.text.normalise import numbers as say
from models.text.normalise.ends import abbreviates, ends, following, is_street
from models.text.normalise.rule import Match, any_of, rule
from models.text.normalise.vocabulary import (
    ABBREVIATIONS,
    DAYS,
    DETERMINERS,
    MIDWAY,
    OPENERS,
    REFERENCES,
    REGNAL_NAMES,
    SHORT_MONTHS,
    STREETS,
    TITLES,
)

# Behind the first of a name, where it is no pronoun: Elizabeth I of England
_BEHIND_FIRST: Final = r"(?=[,;:)]|'s|\s(?:of|was|is|had|and|ruled|died|became|in|who)\b)"
_AMBIGUOUS: Final = frozenset(["Sat", "Sun", "Mar", "Jan", "Jun", "Jul"])  # words or names, too
_AFTER_DAYS: Final = frozenset([
    "on",
    "in",
    "by",
    "since",
    "until",
    "till",
    "last",
    "next",
    "this",
    "every",
    "from",
    "to",
    "of",
    "and",
    "through",
    "early",
    "late",
    "mid",
])


def full_stop(match: Match) -> str:
    """Return "." if the full stop at the end of a match also ends a sentence, else ""."""
    return "." if match[0].endswith(".") and ends(match.string, match.end()) else ""


def _abbreviation(match: Match) -> str:
    word = match[1]
    spoken = ABBREVIATIONS[word]
    if word[0].isupper():
        spoken = spoken[0].upper() + spoken[1:]
    return spoken + full_stop(match)


def _street(match: Match) -> str:
    return STREETS[match[1]] + full_stop(match)


def _street_or_title(match: Match) -> str:
    """Distinguish "Oak St. She left" from "see Dr. Will Jones" by the words around."""
    if is_street(following(match.string, match.end())):
        return _street(match)
    return TITLES[match[1]] + _title_end(match)


def _title_end(match: Match) -> str:
    upcoming = following(match.string, match.end())
    return "" if abbreviates(upcoming) and upcoming.next else full_stop(match)


def _title(match: Match) -> str:
    spoken = TITLES[match[1].capitalize()]
    spoken = spoken if match[1][0].isupper() else spoken.lower()
    return spoken + _title_end(match)


def _day_or_month(match: Match) -> str:
    """Write a day or month out where it can be no name: "On Mon. we", not "the Sun. It"."""
    word = match[1]
    upcoming = following(match.string, match.end())
    before = match.string[max(0, match.start() - 16) : match.start()].split()[-1:]
    cued = bool(before) and before[0].lower().strip("(\"'") in _AFTER_DAYS
    goes_on = upcoming.next[:1].islower() or match.string[match.end() :][:1] in {*",;:)"}
    cued = cued or word not in _AMBIGUOUS
    if not cued and (not goes_on or (before and before[0].lower() in DETERMINERS)):
        return match[0]
    return {**DAYS, **SHORT_MONTHS}[word] + full_stop(match)


def _initials(match: Match) -> str:
    return say.letters(match[0].replace(".", "")) + full_stop(match)


def _initial(match: Match) -> str:
    return match[0] if ends(match.string, match.end()) else say.letters(match[1])


def _reference(match: Match) -> str:
    if not abbreviates(following(match.string, match.end(1) + 1)):
        return match[0]
    spoken = REFERENCES[match[1].lower()]
    spoken = spoken.capitalize() if match[1][0].isupper() else spoken
    return f"{spoken} {say.cardinal(str(say.roman(match[2])))}" if match[2] else spoken


def _roman(match: Match) -> str:
    value = say.roman(match[2])
    if not value:
        return match[0]
    spoken = say.cardinal(str(value))
    if match[1] in REGNAL_NAMES:
        spoken = f"the {say.ordinal(str(value))}"
    return f"{match[1]} {spoken}"


RULES: Final = (
    rule(rf"(?<=\w )({any_of(STREETS.keys() - TITLES.keys())})\.(?!\w)", _street),
    rule(r"\b(St|Dr)\.(?!\w)", _street_or_title),
    rule(rf"\b({any_of(TITLES)})\.(?=\s+[\"']?\w)", _title),
    rule(r"(?<!\w)(mr|mrs|ms|dr|prof)\.(?!\w)", _title),
    rule(
        r"\b(Mrs?|Ms|Messrs|Dr|Prof)\.?(?=\s(?:[A-Z]|and\b|or\b|&))", lambda match: TITLES[match[1]]
    ),
    rule(rf"\b({any_of({**DAYS, **SHORT_MONTHS})})\.(?!\w)", _day_or_month),
    rule(rf"(?<![\w.])({any_of(REFERENCES)})\.\s?([IVXLC]{{1,7}})\b", _reference, re.IGNORECASE),
    rule(rf"(?<![\w.])({any_of(REFERENCES)})\.()(?=\s?\d)", _reference, re.IGNORECASE),
    rule(rf"(?<![\w.])({any_of(ABBREVIATIONS)})\.(?!\w)", _abbreviation),
    rule(r"\b([Tt])el\.:", r"\1elephone:"),
    rule(rf"(?<![\w.])({any_of(MIDWAY)})\.(?=\s+[a-z\d(])", lambda match: MIDWAY[match[1]]),
    rule(r"\bvs\b", "versus"),
    rule(  # Henry V met. Not an initial: John V. Smith
        rf"\b({any_of(REGNAL_NAMES)}) ([VX]|I{_BEHIND_FIRST})\b"
        rf"(?!\.\s(?!(?:{any_of(OPENERS)})\b)[A-Z])",
        _roman,
    ),
    rule(r"(?<![\w.])(?:[A-Za-z]\.){2,}", _initials),
    rule(r"(?<![\w.'])([A-HJ-Z])\.(?=\s+[A-Z])", _initial),
    rule(r"\bw/o\b", "without"),
    rule(r"\bw/(?=\s?\w)", "with "),
    rule(r"\b([A-Z][A-Za-z]+) ([IVX]{2,})\b", _roman),
)
