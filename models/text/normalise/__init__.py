"""Normalisation of written English: numbers, money, dates, units, abbreviations, addresses.

Regex rules, applied in order, with American usage; case and punctuation are kept, and so are
characters of the Private Use Area (inline phonemes).
"""

from typing import Final

from models.text.normalise import (
    abbreviations,
    addresses,
    dates,
    headings,
    notations,
    quantities,
    symbols,
)
from models.text.source import Rewritten

_RULES: Final = (
    *addresses.RULES,
    *headings.RULES,
    *notations.RULES,
    *dates.RULES,
    *quantities.SPECIFIC,
    *abbreviations.RULES,
    *quantities.GENERAL,
    *symbols.RULES,
)


def normalise(text: str) -> str:
    """Return what `normalised` makes of a text."""
    return normalised(Rewritten.of(text)).text


def normalised(text: Rewritten) -> Rewritten:
    """Return a text, `models.text.characters.cleaned`, as words and punctuation without digits."""
    for rule in symbols.LAYOUT:
        text = text.sub(*rule)
    text = text.without_layout()
    for rule in _RULES:
        text = text.sub(*rule)
    return text.strip()
