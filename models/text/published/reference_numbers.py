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
_ONES: Final = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS: Final = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_THOUSANDS: Final = ("", " thousand", " million", " billion", " trillion", " quadrillion")
_ORDINALS: Final = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth",
    "nine": "ninth", "twelve": "twelfth",
}  # fmt: skip


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
    told = [f"{count} {unit}{'' if count == 1 else 's'}" for count, unit in units if count]
    return ", ".join(told) or "zero dollars"


def _number(number: int) -> str:
    """Return a number as words; one between 1000 and 3000 as a year."""
    if not 1000 < number < 3000 or number == 2000:
        return _cardinal(number, "")
    if 2000 < number < 2010:
        return f"two thousand {_ONES[number % 100]}"
    century, rest = divmod(number, 100)
    if not rest:
        return f"{_cardinal(century, '')} hundred"
    return f"{_cardinal(century, '')} {'oh ' * (rest < 10)}{_cardinal(rest, '')}"


def _cardinal(number: int, joint: str) -> str:
    """Return a number as words; ``joint`` stands between hundreds and the rest."""
    if number < 1000:
        return _below_1000(number, joint)
    groups: list[str] = []
    last = number % 1000
    rest = number
    for unit in _THOUSANDS:
        rest, group = divmod(rest, 1000)
        if group:
            groups.insert(0, _below_1000(group, joint) + unit)
    if rest:
        return " ".join(_ONES[int(digit)] for digit in str(number))
    if joint and 0 < last < 100:
        return f"{', '.join(groups[:-1])}{joint}{groups[-1]}"
    return ", ".join(groups)


def _below_1000(number: int, joint: str) -> str:
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return _below_100(rest)
    tail = (joint or " ") + _below_100(rest) if rest else ""
    return f"{_ONES[hundreds]} hundred{tail}"


def _below_100(number: int) -> str:
    if number < 20:
        return _ONES[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_ONES[ones]}" if ones else "")


def _ordinal(number: int) -> str:
    words = _cardinal(number, " and ")
    head, last = re.fullmatch(r"(.*?)(\w+)", words).groups()  # type: ignore[union-attr]
    ordinal = _ORDINALS.get(last) or f"{last.removesuffix('y')}{'ie' * last.endswith('y')}th"
    return head + ordinal.replace("tth", "th")
