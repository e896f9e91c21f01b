"""Rules for money, units, telephone numbers, fractions, ranges and plain numbers."""

# ruff: noqa: RUF001 - the multiplication sign looks like a letter

import re
from typing import Final

from models.text.normalise import numbers as say
from models.text.normalise.abbreviations import full_stop
from models.text.normalise.rule import ALONE, INTEGER, NUMBER, Match, any_of, rule
from models.text.normalise.vocabulary import CURRENCIES, MAGNITUDES, PER, UNITS

_DASH: Final = "[-\u2013\u2014]"
_CURRENCY: Final = any_of(CURRENCIES)
_LONG_MAGNITUDE: Final = any_of(word for word in MAGNITUDES if len(word) > 1)
_PRODUCTS: Final = {"²": "square ", "2": "square ", "³": "cubic ", "3": "cubic "}


def _digit_groups(match: Match) -> str:
    plus = "plus " if match[0].startswith("+") else ""
    return plus + ", ".join(say.digits(group) for group in re.findall(r"\d+", match[0]))


def _money(match: Match) -> str:
    minus = "minus " if match["minus"] else ""
    magnitude = match["word"] or match["letter"] or ""
    if match["to"]:
        amount = say.money(match["symbol"], match["to"], magnitude)
        return f"{minus}{say.decimal(match['number'])} to {amount}"
    return minus + say.money(match["symbol"], match["number"], magnitude)


def _unit(match: Match) -> str:
    number, unit, per = match["number"], UNITS[match["unit"]], match["per"]
    unit = _PRODUCTS.get(match["power"], "") + unit
    if match["joint"] != "-" and number != "1":
        unit = say.plural(unit)
    if per:
        unit += f" per {_PRODUCTS.get(match['per_power'], '')}{UNITS.get(per) or PER[per]}"
    return f"{say.decimal(number)} {unit}{full_stop(match)}"


def _height(match: Match) -> str:
    feet = "foot" if match[1] == "1" else "feet"
    return f"{say.cardinal(match[1])} {feet} {say.cardinal(match[2])}"


def _fraction(match: Match) -> str:
    if not match[1]:
        return say.fraction(match[2], match[3])
    part = say.fraction(match[2], match[3])
    if match[2] == "1":  # two and a half
        part = "a" + part.removeprefix("one")
    return f"{say.cardinal(match[1])} and {part}"


def _version(match: Match) -> str:
    groups = match[0].split(".")
    return (" dot " if len(groups) == 4 else " point ").join(map(say.cardinal, groups))


_POWER: Final = "[²³]|[23](?!\\w)"

SPECIFIC: Final = (
    rule(  # telephone numbers, then cards, then codes of three groups and more
        rf"{ALONE}(?:\+?\d{{1,3}}[ .-]?)?(?:\(\d{{3}}\)[ .-]?|\d{{3}}[ .-])\d{{3}}[ .-]\d{{4}}"
        r"(?![\w-])",
        _digit_groups,
    ),
    rule(r"(?<!\w)\+\d{1,3}(?:[ .-]?\(?\d{1,4}\)?){2,5}(?!\w)", _digit_groups),
    rule(rf"{ALONE}\d{{3}}-\d{{4}}(?![\w-])", _digit_groups),
    rule(rf"{ALONE}\d{{4}}(?:[ -]\d{{4}}){{3}}(?![\w-])", _digit_groups),
    rule(rf"{ALONE}\d+(?:-\d+){{2,}}(?![\w-])", _digit_groups),
    rule(r"(?<![\w)-])-(?=\.?\d)", "minus "),
    rule(r"(?<=[\w)])\s?\^\s?(?=-?\d)", " to the power of "),
    rule(r"(€\s?\d+),(?=\d\d(?![\d,]))", r"\1."),
    rule(r"(?<![\d,.])(\d+),(?=\d\d\s?(?:€|EUR))", r"\1."),
    rule(r"\b401\(?k\b\)?", "four oh one K"),
    rule(r"(?<=\b[Cc]all )911\b|(?<=\b[Dd]ial )911\b", _digit_groups),
    rule(
        rf"(?P<minus>(?<![\w)])-)?(?<![A-Za-z])(?P<symbol>{_CURRENCY})\s?(?P<number>{NUMBER})"
        rf"(?:\s?{_DASH}\s?(?:{_CURRENCY})?(?P<to>{NUMBER}))?"
        rf"(?:[\s-]?(?P<word>{_LONG_MAGNITUDE})\b|(?P<letter>[kKmMbBT])\b)?",
        _money,
    ),
    rule(
        rf"{ALONE}({NUMBER})\s?({_CURRENCY})(?![A-Za-z])",
        lambda match: say.money(match[2], match[1]),
    ),
    rule(rf"{ALONE}1\s?¢", "one cent"),
    rule(r"(?<=\d)\s?¢", " cents"),
    rule(r"(?<=\d)\s?%", " percent"),
    rule(r"\b(\d)\s?ft\.?\s(\d{1,2})\s?in\b\.?", _height),
    rule(
        rf"{ALONE}(?P<number>{NUMBER})(?P<joint>[ -]?)(?P<unit>{any_of(UNITS)})(?P<power>{_POWER})?"
        rf"(?:/(?P<per>{any_of({**UNITS, **PER})})(?P<per_power>{_POWER})?)?(?!\w|-\w|/\w|'\w)"
        r"(?:(?<!\.)\.(?=\s|$))?",
        _unit,
    ),
    rule(rf"(?<=[a-z])/({any_of(PER)})\b", lambda match: f" per {PER[match[1]]}"),
    rule(r"(?<![\w'])(\d)'\s?(\d{1,2})(?:\"|'')?(?!\w)", _height),
    rule(rf"{ALONE}24/7(?![\w/])", "twenty-four seven"),
    rule(rf"{ALONE}9/11(?![\w/])", "nine eleven"),
    rule(rf"{ALONE}(?:(\d+)\s)?([1-9]\d*)/([1-9]\d*)(?![\w/]|\.\d)", _fraction),
    rule(r"(?<![\w.])[vV](?=\d+\.\d)", "version "),
    rule(r"(?<![\d.])\d+(?:\.\d+){2,}(?!\w)", _version),
    rule(
        rf"{ALONE}({NUMBER})(k|M|bn|mn|tn)\b", lambda m: f"{say.decimal(m[1])} {MAGNITUDES[m[2]]}"
    ),
)

GENERAL: Final = (
    rule(r"(?<![\d.,])(\d+):(\d+)(?![\d:])", r"\1 to \2"),
    rule(rf"(?<=\d)\s{_DASH}\s(?=\.?\d)", " minus "),
    rule(rf"(?<=\d){_DASH}(?=\.?\d)", " to "),
    rule(r"(?<=\d)\s?[xX×]\s(?=\d)", " times "),
    rule(r"(?<=\d)[xX×](?=\d+(?:[xX×]\d+)*\s?=)", " times "),
    rule(r"(?<=\d)[xX×](?=\d)", " by "),
    rule(r"(?<=\d)[xX×](?!\w)", " times"),
    rule(r"(?<=\d)\s?\*\s?(?=\d)", " times "),
    rule("²", " squared"),
    rule("³", " cubed"),
    rule(r"(?<![\w~])~\s?(?=\d)", "about "),
    rule(r"(?<=\s)<(?=\s|-?\d)", "less than "),
    rule(r"(?<=\s)>(?=\s|-?\d)", "greater than "),
    rule(r"(?<=\d),(?=\d(?!\d\d(?!\d)))", ", "),
    rule(rf"(?<!\d)({INTEGER})(?:st|nd|rd|th)\b", lambda match: say.ordinal(match[1])),
    rule(r"(?<=[A-Za-z])-?(?=\d)", " "),
    rule(rf"{ALONE}(?:1[1-9]|20)\d\d(?!\w|[.,]\d)", lambda match: say.year(match[0])),
    rule(rf"(?<![\d.])({NUMBER})(?=[A-Za-z])", lambda match: f"{say.decimal(match[1])} "),
    rule(NUMBER, lambda match: say.decimal(match[0])),
)
