"""Rules for the numbers of chapters, acts and parts: Chapter 01, CHAPTER I., Part I of II."""

import re
from typing import Final

from models.text.normalise import numbers as say
from models.text.normalise.rule import Match, rule

DIVISIONS: Final = (
    "chapter|act|part|scene|book|volume|canto|stave|phase|stage|section|article|appendix|episode"
    "|season|lesson|unit|level|type|class|war|letter|psalm|sonnet|step|day|week|track|page"
)
_WRITTEN: Final = "|".join(
    form for name in DIVISIONS.split("|") for form in (name.capitalize(), name.upper())
)
# What follows a numeral, but no pronoun: "Part I of it", not "the Part I played".
_BEHIND: Final = (
    r"(?=[ \t]*(?:$|[.,:;!?)\]\n\u2014\u2013-])|\s+(?:\d|of|and|or|is|was|to|in|by|on|as|the|that"
    r"|which|with|we|he|she|it|they|begins|opens|ends|deals|covers|[A-Z])\b)"
)


def _numeral(match: Match) -> str:
    value = say.roman(match[2])
    return f"{match[1]} {say.cardinal(str(value))}" if value else match[0]


RULES: Final = (
    rule(rf"\b({DIVISIONS}|no\.|vol\.) 0+(?=[1-9])", r"\1 ", re.IGNORECASE),
    rule(rf"\b({_WRITTEN})[ \t]+([IVXLC]{{2,}}|[VX])\b(?!['\u2019])", _numeral),
    rule(r"\b(War|WAR) (I)\b(?!['\u2019])", _numeral),
    rule(rf"\b({_WRITTEN})[ \t]+(I)\b(?!['\u2019]){_BEHIND}", _numeral),
    rule(r"\b(of) ([IVX]+)(?=[.,:;!?)]|\s*$)", _numeral, re.MULTILINE),
)
