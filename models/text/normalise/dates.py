"""Rules for dates (month before day), years, decades and times of day."""

import re
from typing import Final

from models.text.normalise import numbers as say
from models.text.normalise.abbreviations import full_stop
from models.text.normalise.rule import ALONE, Match, any_of, rule
from models.text.normalise.vocabulary import DAYS, MONTHS, SHORT_MONTHS

_MONTH_NUMBERS: Final = {
    written: MONTHS.index(name) + 1
    for written, name in {**{name: name for name in MONTHS}, **SHORT_MONTHS}.items()
}
_WEEK_DAYS: Final = tuple(dict.fromkeys(DAYS.values()))  # from Monday on
_MONTH: Final = rf"\b(?P<month>{any_of(_MONTH_NUMBERS)})\b\.?"
_YEAR: Final = r"(?P<year>1[0-9]\d\d|20\d\d)(?![\d,]*\d|\.\d)"
_DAY: Final = r"(?P<day>[12]\d|3[01]|0?[1-9])(?![\d:]|[.,]\d)(?:st|nd|rd|th)?"
_DASH: Final = "[-\u2013\u2014]"


def _month(match: Match) -> int:
    return _MONTH_NUMBERS[match["month"]]


def _date(match: Match) -> str:
    """Expand a numeric date, month first unless only the other order is valid."""
    month = int(match["month"])
    day = int(match["day"])
    year = match["year"]
    if month > 12:
        month, day = day, month
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return match[0]
    if len(year) == 2:
        year = f"{20 if int(year) < 50 else 19}{year}"
    return say.date(str(day), month, year)


def _day_first(match: Match) -> str:
    """Expand a numeric date with full stops: day first, as where dates are written so."""
    day = int(match["day"])
    month = int(match["month"])
    if month > 12:
        month, day = day, month
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return match[0]
    return say.date(str(day), month, match["year"])


def _iso_time(match: Match) -> str:
    """Expand a timestamp of ISO 8601; its zone is UTC or an offset from it."""
    month = int(match["month"])
    day = int(match["day"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return match[0]
    time = say.clock(match["hour"], match["minute"], (match["second"] or "").replace(",", "."))
    spoken = f"{say.date(str(day), month, match['year'])}, {time}"
    if not (zone := match["zone"]):
        return spoken
    spoken += f" {say.letters('UTC')}"
    if zone in "Zz" or not int(match["off_hour"] or 0) + int(match["off_minute"] or 0):
        return spoken
    offset = say.cardinal(str(int(match["off_hour"])))
    if int(match["off_minute"] or 0):
        offset += f" {say.cardinal(match['off_minute'])}"
    return f"{spoken} {'plus' if zone[0] == '+' else 'minus'} {offset}"


def _week(match: Match) -> str:
    """Expand a week of ISO 8601, or a day of it."""
    day = f"{_WEEK_DAYS[int(match['day']) - 1]} of " if match["day"] else ""
    return f"{day}week {say.cardinal(str(int(match['week'])))}, {say.year(match['year'])}"


def _year_month(match: Match) -> str:
    """Tell the month "2026-06" from the years "2008-09"."""
    if int(match["month"]) > int(match["year"][2:]):
        return match[0]
    return f"{MONTHS[int(match['month']) - 1]} {say.year(match['year'])}"


def _named_day(match: Match) -> str:
    year = match["year"]
    if len(year) == 2:
        year = f"{20 if int(year) < 50 else 19}{year}"
    return say.date(match["day"], _month(match), year)


def _elapsed(match: Match) -> str:
    """Expand "2h 30m" and "5m 30s"."""
    units = {"h": "hour", "m": "minute", "s": "second"}
    spoken = []
    for number, unit in _DURATION.findall(match[0]):
        name = units[unit[0]]
        count = say.cardinal(number.lstrip("0") or "0")
        spoken.append(f"{count} {name if count == 'one' else name + 's'}")
    return " ".join(spoken)


def _month_day(match: Match) -> str:
    last = f" to {say.ordinal(match['last'])}" if match["last"] else ""
    year = f", {say.year(match['year'])}" if match["year"] else ""
    return say.date(match["day"], _month(match)) + last + year


def _day_month(match: Match) -> str:
    year = f", {say.year(match['year'])}" if match["year"] else ""
    article = match["the"] or "the "
    return f"{article}{say.ordinal(match['day'])} of {MONTHS[_month(match) - 1]}{year}"


def _month_year(match: Match) -> str:
    return f"{MONTHS[_month(match) - 1]} {say.year(match['year'])}"


def _clock(match: Match) -> str:
    named = match.groupdict()
    half = (named.get("half") or "").lower()
    second = (match["second"] or "").replace(",", ".")
    spoken = say.clock(match["hour"], match["minute"] or "00", second, half)
    return spoken + full_stop(match)


def _lap(match: Match) -> str:
    seconds = say.decimal(match[2])
    if match[2].startswith("0"):
        seconds = seconds.replace("zero", "oh", 1)
    return f"{say.cardinal(str(int(match[1])))} {seconds}"


def _two_digits(year: str) -> str:
    return f"oh {say.cardinal(year[1])}" if year.startswith("0") else say.cardinal(year)


def _years(match: Match) -> str:
    last = say.year(match[2]) if len(match[2]) == 4 else _two_digits(match[2])
    return f"{say.year(match[1])} to {last}"


_HALF: Final = r"\s?(?P<half>[ap])(?:\.\s?m\.|\.?m\b(?:\.(?=\s+[a-z]))?)"
_CLOCK: Final = r"(?<![\w:.,])(?P<hour>[01]?\d|2[0-3])"
_MINUTE: Final = r":(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d(?:[.,]\d{1,9}(?!\d))?))?"
_DURATION: Final = re.compile(r"(\d+)\s?(h(?:rs?)?|m(?:ins?)?|s(?:ecs?)?)")

RULES: Final = (
    rule(
        rf"{ALONE}(?P<year>\d{{4}})(?P<dash>-?)(?P<month>\d\d)(?P=dash)(?P<day>\d\d)"
        r"(?:[Tt]|(?<=-\d\d) )"
        r"(?P<hour>[01]\d|2[0-4]):?(?P<minute>[0-5]\d)(?::?(?P<second>[0-6]\d(?:[.,]\d{1,9})?))?"
        r"(?P<zone>\s?(?:[Zz]|(?:UTC|GMT)\b)"
        r"|\s?[+-](?P<off_hour>0\d|1[0-4]):?(?P<off_minute>[0-5]\d)?)?"
        r"(?![\w:]|[.,-]\d|\s?[ap]\.?m\b)",
        _iso_time,
    ),
    rule(rf"{ALONE}(?P<year>\d{{4}})([-/])(?P<month>\d\d?)\2(?P<day>\d\d?)(?![\w/-]|\.\d)", _date),
    rule(rf"{ALONE}(?P<year>[12]\d{{3}})\.(?P<month>\d\d)\.(?P<day>\d\d)(?![\w/-]|\.\d)", _date),
    rule(rf"{ALONE}(?P<year>(?:19|20)\d\d)-(?P<month>0[1-9]|1[0-2])(?![\w-]|[.,]\d)", _year_month),
    rule(
        rf"{ALONE}(?P<month>\d\d?)([/-])(?P<day>\d\d?)\2(?P<year>[12]\d{{3}})(?![\w/-]|\.\d)",
        _date,
    ),
    rule(
        rf"{ALONE}(?P<day>\d\d?)\.\s?(?P<month>\d\d?)\.\s?(?P<year>[12]\d{{3}})(?![\w/-]|\.\d)",
        _day_first,
    ),
    rule(
        rf"{ALONE}(?P<year>(?:19|20)\d\d)-?W(?P<week>0[1-9]|[1-4]\d|5[0-3])(?:-?(?P<day>[1-7]))?(?!\w)",
        _week,
    ),
    rule(rf"{ALONE}((?:19|20)\d\d)-?(Q[1-4])(?!\w)", r"\2 \1"),
    rule(  # 01/2024-12/2024
        rf"{ALONE}((?:0?[1-9]|1[0-2])/(?:19|20)\d\d)\s?{_DASH}\s?(?=(?:0?[1-9]|1[0-2])/(?:19|20)\d\d)",
        r"\1 to ",
    ),
    rule(
        rf"{ALONE}(?P<month>0?[1-9]|1[0-2])/(?P<year>(?:19|20)\d\d)(?![\w/-]|\.\d)",
        lambda match: f"{MONTHS[int(match['month']) - 1]} {say.year(match['year'])}",
    ),
    rule(
        rf"{ALONE}(?P<day>[12]\d|3[01]|0?[1-9])([-/]){_MONTH}\2(?P<year>(?:1\d|20)?\d\d)(?![\w-])",
        _named_day,
    ),
    rule(rf"{ALONE}(?P<month>\d\d?)/(?P<day>\d\d?)/(?P<year>\d\d)(?![\w/-]|\.\d)", _date),
    rule(
        rf"\b({any_of(DAYS)})\.?\s?{_DASH}\s?({any_of(DAYS)})\b",
        lambda match: f"{DAYS[match[1]]} to {DAYS[match[2]]}",
    ),
    rule(rf"\b({any_of(DAYS)})(?:\.,?|,)(?=\s(?:\d|{_MONTH}))", lambda match: f"{DAYS[match[1]]},"),
    rule(
        rf"(?P<the>\b[Tt]he )?{ALONE}{_DAY}(?: of)? {_MONTH}(?:,?\s{_YEAR})?",
        _day_month,
    ),
    rule(rf"{_MONTH}\s{_YEAR}", _month_year),
    rule(rf"{_MONTH}\s{_DAY}(?!\w)(?:\s?{_DASH}\s?(?P<last>\d\d?)\b)?(?:,?\s{_YEAR})?", _month_day),
    rule(rf"(?<=\d)\s?{_DASH}\s?(?=\d\d?:\d\d|\d\d?\s?[ap]\.?m\b)", " to ", re.IGNORECASE),
    rule(rf"(?<=[ap]m)\s?{_DASH}\s?(?=\d\d?:\d\d|\d\d?\s?[ap]\.?m\b)", " to ", re.IGNORECASE),
    rule(rf"(?<=:\d\d){_DASH}(?=\d\d?\b)", " to "),
    rule(
        rf"{ALONE}\d{{1,4}}\s?h(?:rs?)?\s?\d{{1,2}}\s?m(?:ins?)?(?:\s?\d{{1,2}}\s?s(?:ecs?)?)?\b",
        _elapsed,
    ),
    rule(rf"{ALONE}\d{{1,4}}\s?m(?:ins?)?\s?\d{{1,2}}\s?s(?:ecs?)?\b", _elapsed),
    rule(rf"{_CLOCK}(?:{_MINUTE})?{_HALF}", _clock, re.IGNORECASE),
    rule(rf"{_CLOCK}{_MINUTE}(?![\d:]|\.\d)", _clock),
    rule(  # of a race: 2:03.5
        r"(?<![\w:.,])(\d{1,2}):([0-5]\d\.\d{1,3})(?![\d:])",
        _lap,
    ),
    rule(r"(?<!\w)'?(1[1-9]\d0|20\d0)'?s\b", lambda match: say.decade(match[1])),
    rule(r"(?<!\w)'?([2-9]0)'?s\b", lambda match: say.decade(match[1])),
    rule(r"(?<!\w)'(\d\d)\b(?!'|\")", lambda match: _two_digits(match[1])),
    rule(
        rf"{ALONE}(1[1-9]\d\d|20\d\d)\s?{_DASH}\s?(1[1-9]\d\d|20\d\d|\d\d)(?![\w-]|[.,]\d)",
        _years,
    ),
)
