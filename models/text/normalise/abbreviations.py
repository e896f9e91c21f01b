"""Rules for abbreviations, initials and roman numerals, and for their full stops."""

import re
from typing import Final

from models.text.normalise import numbers as say
from models.text.normalise.rule import Match, any_of, rule
from models.text.normalise.vocabulary import (
    ABBREVIATIONS,
    MIDWAY,
    OPENERS,
    REFERENCES,
    REGNAL_NAMES,
    STREETS,
    TITLES,
)

_NEAR_CHARS: Final = 64  # how far back the preceding word is searched
_FOLLOWING: Final = re.compile(r"[\"')]*(?:\s+[\"'(]*(\w*)|$)")


def full_stop(match: Match) -> str:
    """Return "." if the full stop at the end of a match also ends a sentence, else ""."""
    following = _FOLLOWING.match(match.string, match.end())
    ends = following is not None and (not following[1] or following[1] in OPENERS)
    return "." if ends and match[0].endswith(".") else ""


def _abbreviation(match: Match) -> str:
    word = match[1]
    spoken = ABBREVIATIONS[word]
    if word[0].isupper():
        spoken = spoken[0].upper() + spoken[1:]
    return spoken + full_stop(match)


def _street(match: Match) -> str:
    return STREETS[match[1]] + full_stop(match)


def _street_or_title(match: Match) -> str:
    """Distinguish "Oak St. She left" from "see Dr. Will Jones" by the preceding word."""
    before = match.string[max(0, match.start() - _NEAR_CHARS) : match.start()].split()[-1]
    if before[0].isupper() and before not in OPENERS:
        return _street(match)
    return TITLES.get(match[1], STREETS[match[1]])


def _initials(match: Match) -> str:
    return say.letters(match[0].replace(".", "")) + full_stop(match)


def _initial(match: Match) -> str:
    return match[0] if match[2] in OPENERS else say.letters(match[1])


def _reference(match: Match) -> str:
    spoken = REFERENCES[match[1].lower()]
    return spoken.capitalize() if match[1][0].isupper() else spoken


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
    rule(rf"(?<=[a-z] )({any_of(STREETS)})\.(?=[,;:?!)]|\s+[a-z]|\s*$)", _street),
    rule(rf"(?<=[a-z] )({any_of(STREETS)})\.(?=\s+(?:{any_of(OPENERS)})\b)", _street_or_title),
    rule(rf"\b({any_of(TITLES)})\.(?=\s+[\"']?[A-Z])", lambda match: TITLES[match[1]]),
    rule(
        r"\b(Mrs?|Ms|Messrs|Dr|Prof)\.?(?=\s(?:[A-Z]|and\b|or\b|&))", lambda match: TITLES[match[1]]
    ),
    rule(rf"(?<![\w.])({any_of(REFERENCES)})\.(?=\s?\d)", _reference, re.IGNORECASE),
    rule(rf"(?<![\w.])({any_of(ABBREVIATIONS)})\.(?!\w)", _abbreviation),
    rule(r"\b([Tt])el\.:", r"\1elephone:"),
    rule(rf"(?<![\w.])({any_of(MIDWAY)})\.(?=\s+[a-z\d(])", lambda match: MIDWAY[match[1]]),
    rule(r"\bvs\b", "versus"),
    rule(r"(?<![\w.])(?:[A-Za-z]\.){2,}", _initials),
    rule(r"(?<![\w.'])([A-HJ-Z])\.(?=\s+([A-Z]\w*))", _initial),
    rule(r"\bw/o\b", "without"),
    rule(r"\bw/(?=\s?\w)", "with "),
    rule(r"\bWar I\b(?!')", "War one"),
    rule(r"\b([A-Z][A-Za-z]+) ([IVX]{2,})\b", _roman),
)
