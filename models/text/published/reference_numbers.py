"""Abbreviations and numbers written out as the reference of VALL-E X does, for comparing with it.

The built-in normaliser (`models.text.normalise`) reads more. Texts are in lower case.
"""

import re
from typing import Final

_ABBREVIATIONS: Final = {
    "mrs": "misess", "mr": "mister", "dr": "doctor", "st": "saint", "co": "company",
    "jr": "junior", "maj": "major", "gen": "general", "drs": "doctors", "rev": "reverend",
    "lt": "lieutenant", "hon": "honorable", "sgt": "sergeant", "capt": "captain", "esq": "esquire",
    "ltd": "limited", "col": "colonel", "ft": "fort",
}  # fmt: skip
_ABBREVIATION: Final = re.compile(rf"\b({'|'.join(_ABBREVIATIONS)})\.")
_LIMIT: Final = 10**18
"""From here on digits are read one by one."""


def numbers_written_out(text: str) -> str:
    """Return a text with abbreviations and numbers as words."""
    text = _ABBREVIATION.sub(lambda one: _ABBREVIATIONS[one[1]], text)
    text = re.sub(r"[0-9][0-9,]+[0-9]", lambda one: one[0].replace(",", ""), text)
    text = re.sub(r"\$([0-9.,]*[0-9]+)", lambda one: _dollars(one[1]), text)
    text = re.sub(r"[0-9]+\.[0-9]+", lambda one: one[0].replace(".", " point "), text)
    text = re.sub(r"([0-9]+)(?:st|nd|rd|th)", lambda one: _ordinal(int(one[1])), text)
    return re.sub(r"[0-9]+", lambda one: _number(int(one[0])), text)


def _dollars(amount: str) -> str:
    parts = amount.split(".")
    if len(parts) > 2:
        return f"{amount} dollars"
    dollars, cents = (int(one or 0) for one in [*parts, "0"][:2])
    units = ((dollars, "dollar"), (cents, "cent"))
    parts = [f"{count} {unit}{'' if count == 1 else 's'}" for count, unit in units if count]
    return ", ".join(parts) or "zero dollars"


def _number(number: int) -> str:
    """Return a number as words; one between 1000 and 3000 as a year."""
    if not 1000 < number < 3000 or number == 2000:
        return _cardinal(number)
    if 2000 < number < 2010:
        return f"two thousand {_cardinal(number % 100)}"
    century, rest = divmod(number, 100)
    if not rest:
        return f"{_cardinal(century)} hundred"
    return f"{_cardinal(century)} {'oh ' * (rest < 10)}{_cardinal(rest)}"


def _cardinal(number: int) -> str:
    if number >= _LIMIT:
        return " ".join(_cardinal(int(digit)) for digit in str(number))
    return _spelled(number, "cardinal").replace("hundred and ", "hundred ").replace(" and ", ", ")


def _ordinal(number: int) -> str:
    if number >= _LIMIT:
        before, last = divmod(number, 10)
        spoken = (_cardinal(int(digit)) for digit in str(before))
        return " ".join([*spoken, _spelled(last, "ordinal")])
    return _spelled(number, "ordinal")


def _spelled(number: int, to: str) -> str:
    # Takes 0.1 s to import, as in `models.text.normalise.numbers`.
    from num2words import num2words  # type: ignore[import-untyped]

    return str(num2words(number, to=to))
