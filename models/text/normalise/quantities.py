"""Rules for money, units, telephone numbers, fractions, ranges and plain numbers."""

# ruff: noqa: RUF001 - the multiplication sign looks like a letter

import re
from typing import Final

from models.text.normalise import numbers as say
from models.text.normalise.abbreviations import full_stop
from models.text.normalise.rule import ALONE, INTEGER, NUMBER, Match, any_of, rule
from models.text.normalise.vocabulary import (
    BIBLE,
    CURRENCIES,
    MAGNITUDES,
    PER,
    SHORT_BOOKS,
    UNITS,
)

_DASH: Final = "[-\u2013\u2014]"
_QUOTE: Final = re.compile(r'(?P<number>(?<=\d))?"')
_ADJECTIVES: Final = "tall|long|wide|high|deep|thick|apart|away|above|below|across"
# What is so many inches large, and no adjective
_NOUN: Final = re.compile(rf"\s+(?!(?:{_ADJECTIVES}|by|in|of|or|and|to|from|is)\b)[A-Za-z]")
_QUOTED_CHARS: Final = 400  # how far before a quote others are counted
_CURRENCY: Final = any_of(CURRENCIES)
_LONG_MAGNITUDE: Final = any_of(word for word in MAGNITUDES if len(word) > 1)
_PRODUCTS: Final = {"2": "square ", "3": "cubic "}
_SUPERSCRIPTS: Final = str.maketrans({"²": "2", "³": "3", "^": ""})
_SWAPPED: Final = str.maketrans(".,", ",.")


def _digit_groups(match: Match) -> str:
    plus = "plus " if match[0].startswith("+") else ""
    return plus + ", ".join(say.digits(group) for group in re.findall(r"\d+", match[0]))


def _telephone(match: Match) -> str:
    """Read a number with a trunk zero digit by digit; shorter ones are no telephone numbers."""
    long = sum(map(str.isdecimal, match[0])) >= 8
    return _digit_groups(match) if long else match[0]


def _asked(match: Match) -> str:
    """Read a number that is dialled digit by digit."""
    return match["before"] + ", ".join(map(say.digits, re.findall(r"\d+", match["number"])))


def _vanity(match: Match) -> str:
    """Read 1-800-FLOWERS: one, eight hundred, flowers."""
    said = []
    for group in re.findall(r"[A-Za-z]+|\d+", match[0]):
        if group.isalpha():
            said.append(group.lower() if len(group) > 2 else say.letters(group))
        elif group.endswith("00"):
            said.append(say.cardinal(group))
        else:
            said.append(say.digits(group))
    return ", ".join(said)


def _point(match: Match) -> str:
    """Return a number of the Continent, 1.000,50, with commas between thousands and a point."""
    return match[0].translate(_SWAPPED)


def _grouped(match: Match) -> str:
    """Return 1.234.567 as a number, unless it may be an address of four bytes."""
    groups = match[0].split(".")
    if len(groups) == 4 and all(int(group) < 256 for group in groups):
        return match[0]
    return "".join(groups)


def _regrouped(match: Match) -> str:
    return re.sub(r"\D", "", match[0])


def _rated(match: Match) -> str:
    return f"{say.decimal(match[1])} out of {say.decimal(match[2])}"


def _money(match: Match) -> str:
    minus = "minus " if match["minus"] else ""
    magnitude = match["word"] or match["letter"] or ""
    if match["to"]:
        amount = say.money(match["symbol"], match["to"], magnitude)
        return f"{minus}{say.decimal(match['number'])} to {amount}"
    return minus + say.money(match["symbol"], match["number"], magnitude)


def _product(power: str | None) -> str:
    return _PRODUCTS.get((power or "").translate(_SUPERSCRIPTS), "")


def _unit(match: Match) -> str:
    number = match["number"]
    unit = UNITS[match["unit"]]
    per = match["per"]
    unit = _product(match["power"]) + unit
    if match["joint"] != "-" and number != "1":
        unit = say.plural(unit)
    if per:
        unit += f" per {_product(match['per_power'])}{UNITS.get(per) or PER[per]}"
    since = f"{say.decimal(match['since'])} to " if match["since"] else ""
    return f"{since}{say.decimal(number)} {unit}{full_stop(match)}"


def _sides(match: Match) -> str:
    unit = "feet" if match[2] == "'" else "inches"
    return " by ".join(f"{say.decimal(one)} {unit}" for one in match.group(1, 3, 4) if one)


def _inches(match: Match) -> str:
    """Read a length in inches; a quote that closes a quotation is none."""
    line = match.string[max(0, match.start() - _QUOTED_CHARS) : match.start()].rpartition("\n")[2]
    quoted = False
    for quote in _QUOTE.finditer(line):
        quoted = not quoted and quote["number"] is None
    if quoted:
        return match[0]
    number = match[0][:-1]
    noun = _NOUN.match(match.string, match.end())
    return f"{number} inch" if noun or number == "1" else f"{number} inches"


def _and_following(match: Match) -> str:
    return " and following" + full_stop(match)


def _verse(match: Match) -> str:
    """Read chapter and verse apart where they would be one number: twenty-three, one."""
    chapter = say.cardinal(match["chapter"])
    verse = say.cardinal(match["verse"])
    joint = "," if len(match["verse"]) != 2 or len(match["chapter"]) > 2 else ""
    last = f" to {say.cardinal(match['last'])}" if match["last"] else ""
    book = SHORT_BOOKS[match["short"]] if match["short"] else match["book"]
    return f"{book} {chapter}{joint} {verse}{last}"


def _height(match: Match) -> str:
    feet = "foot" if match[1] == "1" else "feet"
    return f"{say.cardinal(match[1])} {feet} {say.cardinal(match[2])}"


def _fraction(match: Match) -> str:
    part = say.fraction(match[2], match[3], part=bool(match[1] or match[4]))
    if not match[1]:
        return part
    if match[2] == "1":  # two and a half
        part = "a" + part.removeprefix("one")
    return f"{say.cardinal(match[1])} and {part}"


def _lines(match: Match) -> str:
    """Read the height of a picture in pairs: 1080p is ten eighty P."""
    return f"{say.cardinal(match[1])} {say.cardinal(match[2])} {say.letters(match[3])}"


def _version(match: Match) -> str:
    groups = match[0].split(".")
    return (" dot " if len(groups) == 4 else " point ").join(map(say.cardinal, groups))


_POWER: Final = "[²³]|(?<=[A-Za-z])\\^?[23](?!\\w)"
_EMERGENCY: Final = "911|999|112|988|[2-8]11|101|111|000|110|118|119"
_COUNTED: Final = r"\s(?!(?:is|was|has|as|us|this|does)\b)(?:[a-z]+s|people|men|women|children)\b"
_GROUPED: Final = r"\d{1,3}(?:\.\d{3})+,\d{1,2}"  # as 1.000,50
_THOUSANDS: Final = r"\d{1,3}(?:\.\d{3})+"
_MEASURED: Final = rf"%|°[CF]?|{any_of(unit for unit in UNITS if unit.isalpha())}|[kKMB]|bn"

SPECIFIC: Final = (
    rule(
        r"(?<![\w-])(?:\+?1[ .-])?(?:\(8\d\d\)|8\d\d|900)[ .-](?=[A-Z\d-]*[A-Z]{3})"
        r"[A-Z\d]+(?:-[A-Z\d]+)*(?!\w)",
        _vanity,
    ),
    rule(r"(?<![\w-])\d{3}-[A-Z]{4}(?![\w-])", _vanity),
    rule(  # telephone numbers, then cards, then codes of three groups and more
        rf"{ALONE}(?:\+?\d{{1,3}}[ .-]?)?(?:\(\d{{3}}\)[ .-]?|\d{{3}}[ .-])\d{{3}}[ .-]\d{{4}}"
        r"(?![\w-])",
        _digit_groups,
    ),
    rule(r"(?<!\w)\+\d{1,3}(?:[ .-]?\(?\d{1,4}\)?){2,5}(?!\w)", _digit_groups),
    rule(
        r"(?<![\w(.,:/+-])(?:\(0\d{1,5}\)|0\d{2,5})[ /-]{1,2}\d{3,8}(?:[ -]\d{2,8}){0,4}(?![\w-])",
        _telephone,
    ),
    rule(rf"{ALONE}\d{{3}}-\d{{4}}(?![\w-])", _digit_groups),
    rule(rf"{ALONE}\d{{5}}-\d{{4}}(?![\w-])", _digit_groups),
    rule(
        rf"(?P<before>\b(?:call|called|calling|calls|dial|dialed|dialled|dialing|ring|text|phone"
        r"|emergency|emergencies|hotline|helpline|police|ambulance|rescue|fire)"
        r"(?:\s(?:is|at|on|to|number|us at|me at)){0,2}:?\s)"
        rf"(?P<number>{_EMERGENCY})(?![\w-]|,\d|\.\d)(?!{_COUNTED})",
        _asked,
        re.IGNORECASE,
    ),
    rule(
        r"(?P<before>\b(?:call|dial|phone|telephone|tel|mobile|fax|cell|text|whatsapp)"
        r"(?:\s(?:is|at|on|us at|me at|number|number is)|\.)?:?\s?)"
        r"(?P<number>\d{7,11})(?![\w,-]|\.\d)",
        _asked,
        re.IGNORECASE,
    ),
    rule(rf"{ALONE}(?<!Porsche )911(?![\w/-]|[.,]\d)(?!{_COUNTED})", _digit_groups),
    rule(rf"{ALONE}\d{{4}}(?:[ -]\d{{4}}){{3}}(?![\w-])", _digit_groups),
    rule(rf"{ALONE}\d+(?:-\d+){{2,}}(?![\w-])", _digit_groups),
    # 5%-10%, 5km-10km, 5th-7th
    rule(
        rf"(?<![\w.])({NUMBER}\s?(?:{_MEASURED}|st|nd|rd|th)|{_CURRENCY}{NUMBER}[kKmMbB]?)"
        rf"\s?{_DASH}\s?(?=(?:{_CURRENCY})?\d)",
        r"\1 to ",
    ),
    rule(r"(?<![\w~])~\s?(?=[$€£¥]?\d)", "about "),
    rule(r"(?<![\w)-])-(?=\.?\d)", "minus "),
    # Sides of a room or a print: 12' x 10', 5" x 7"
    rule(
        rf"{ALONE}({NUMBER})(['\"])\s?[xX×]\s?({NUMBER})\2(?:\s?[xX×]\s?({NUMBER})\2)?(?!\w)",
        _sides,
    ),
    rule(rf"(?<![\w.,:/'-])(?<!' )(?:\d+[ -])?(?:\d+/\d+|{NUMBER})\"(?=[\s.,;:)]|$)", _inches),
    rule(
        rf"{ALONE}({NUMBER})(\s?(?:ft|in|m|cm|mm|yd)\.?)\s?[xX×]\s?(?={NUMBER}\s?(?:ft|in|m|cm|mm|yd)\b)",
        r"\1\2 by ",
    ),
    rule(rf"{ALONE}({NUMBER})'(?=\s+(?:{_ADJECTIVES})\b)", r"\1 feet"),
    rule(r"(?<=\d)\s?ff(?:\.|\b)|(?<=\d)f\.(?=\s+[a-z]|[,;)])", _and_following),
    rule(  # chapter and verse
        rf"\b(?P<book>{any_of(BIBLE)}|(?P<short>{any_of(SHORT_BOOKS)})\.?)\s(?P<chapter>\d{{1,3}}):(?P<verse>\d{{1,3}})"
        rf"(?:{_DASH}(?P<last>\d{{1,3}}))?(?![\d:])",
        _verse,
    ),
    rule(r"(\d)(?=[$€£¥₹₽₩₿]\s?\.?\d)", r"\1 "),
    # Thousands and decimals as elsewhere: 1.000,50 and 1.234.567, 2,00,000, 1'000, 1 000 000
    rule(rf"(?<![\d.,]){_GROUPED}(?![\d.,]*\d)", _point),
    rule(rf"(?<=€)\s?{_THOUSANDS}(?![\d.,]*\d)|(?<=EUR ){_THOUSANDS}(?![\d.,]*\d)", _point),
    rule(rf"(?<![\w.,]){_THOUSANDS}(?=\s?(?:€|EUR|euros?)(?!\w))", _point),
    rule(r"(?<![\w.,])\d{1,3}(?:\.\d{3}){2}(?:\.\d{3}){0,3}(?![\w.,]*\d)", _grouped),
    rule(r"(?<![\d,.])\d{1,2}(?:,\d{2}){1,5},\d{3}(?![\d,]*\d)", _regrouped),
    rule(r"(?<![\w'.,])\d{1,3}(?:'\d{3})+(?![\w'])", _regrouped),
    rule(
        r"(?<![\w.,:/-])(?<!\d )(?:\d{1,2}(?: \d{3}){2,4}|\d{1,3}(?: 000)+)(?! ?\d|\w)", _regrouped
    ),
    rule(r"([€$£]\s?\d+),(?=\d\d(?![\d,]))", r"\1."),
    rule(rf"(?<![\d,.$€£¥₹])(\d+),(?=\d\d\s?(?:{_CURRENCY})(?!\s?\d|[A-Za-z]))", r"\1."),
    rule(r"(?<![\d,.])(\d+),(?=\d{1,2}\s?(?:%|°[CF]|[ckm]?m|km/h|[km]?g)(?!\w))", r"\1."),
    rule(r"\b401\(?k\b\)?", "four oh one K"),
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
    rule(r"(?<=\d)\s?¢", lambda _: " cents"),
    rule(r"(?<=\d)\s?%", lambda _: " percent"),
    rule(r"\b(\d)\s?ft\.?\s(\d{1,2})\s?in\b\.?", _height),
    rule(
        rf"{ALONE}(?:(?P<since>{NUMBER})\s?{_DASH}\s?)?(?P<number>{NUMBER})(?P<joint>[ -]?)"
        rf"(?P<unit>{any_of(UNITS)})(?P<power>{_POWER})?"
        rf"(?:/(?P<per>{any_of({**UNITS, **PER})})(?P<per_power>{_POWER})?)?(?!\w|-\w|/\w|'\w)"
        r"(?:(?<!\.)\.(?=\s|$))?",
        _unit,
    ),
    rule(r"°([CF])\b", lambda match: f"degrees {'Celsius' if match[1] == 'C' else 'Fahrenheit'}"),
    rule(rf"(?<=[a-z\d])/({any_of(PER)})\b", lambda match: f" per {PER[match[1]]}"),
    rule(r"(?<![\w'])(\d)'\s?(\d{1,2})(?:\"|'')?(?!\w)", _height),
    rule(rf"{ALONE}24/7(?![\w/])", "twenty-four seven"),
    rule(rf"{ALONE}9/11(?![\w/])", "nine eleven"),
    rule(rf"{ALONE}(\d+\.\d+)/(\d+(?:\.\d+)?)(?![\w/]|\.\d)", _rated),
    rule(rf"{ALONE}(0)/([1-9]\d*)(?![\w/]|\.\d)", _rated),
    rule(
        rf"{ALONE}(\d+)/(\d+(?:\.\d+)?)(?=\s(?:stars?|points?|marks?|correct|rating|questions?)\b)",
        _rated,
    ),
    rule(
        rf"{ALONE}(?:(\d+)[\s-])?([1-9]\d*)/([1-9]\d*)(rds?|ths?|nds?|sts?)?(?![\w/]|\.\d)",
        _fraction,
    ),
    rule(r"(?<![\w.])[vV](?=\d+\.\d)", "version "),
    rule(r"(?<=alpha)\.(?=\d)|(?<=beta)\.(?=\d)|(?<=rc)\.(?=\d)|(?<=dev)\.(?=\d)", " "),
    rule(r"(?<!\w)(\d{1,2})(\d\d)([pi])\b(?!\.)", _lines),
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
    rule(r"(?<=\d)[xX×](?=\d)", " by "),
    rule(r"(?<=\d)[xX×](?!\w)", " times"),
    rule(r"(?<=\d)\s?\*\s?(?=\d)", " times "),
    rule("²", " squared"),
    rule("³", " cubed"),
    rule(r"(?<=\s)<(?=\s|-?\d)", "less than "),
    rule(r"(?<=\s)>(?=\s|-?\d)", "greater than "),
    rule(r"(?<=\d),(?=\d(?!\d\d(?!\d)))", ", "),
    # A mark between words that are already written out and digits
    rule(r"(?<=[A-Za-z])([,:])(?=\d)", r"\1 "),
    rule(r"(?<=[A-Za-z])\.(?=\d)", " point "),
    rule(rf"(?<!\d)({INTEGER})(?i:st|nd|rd|th)\b", lambda match: say.ordinal(match[1])),
    rule(r"(?<=[A-Za-z])-?(?=\d)", " "),
    rule(rf"{ALONE}(?:1[1-9]|20)\d\d(?!\w|[.,]\d)", lambda match: say.year(match[0])),
    rule(rf"(?<![\d.])({NUMBER})(?=[A-Za-z])", lambda match: f"{say.decimal(match[1])} "),
    rule(NUMBER, lambda match: say.decimal(match[0])),
)
