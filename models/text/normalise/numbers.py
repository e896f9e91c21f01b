"""Digits to words: cardinals, ordinals, decimals, years, money, fractions, single letters.

num2words spells numbers; this module decides which spelling a string of digits gets. Every function
takes strings as written in a text, including grouping commas.
"""

from typing import Final

from models.text.normalise.vocabulary import CURRENCIES, IRREGULAR_PLURALS, MAGNITUDES, MONTHS

# Longer runs of digits are account numbers or keys, read digit by digit.
_LONGEST_CARDINAL: Final = 15


def cardinal(number: str) -> str:
    """Return "1,234" in words; digit by digit with a leading zero or if very long."""
    number = number.replace(",", "")
    if (number.startswith("0") and len(number) > 1) or len(number) > _LONGEST_CARDINAL:
        return digits(number)
    return _spelled(int(number))


def ordinal(number: str) -> str:
    """Return "21" as "twenty-first"."""
    number = number.replace(",", "")
    if len(number) > _LONGEST_CARDINAL:
        return digits(number)
    return _spelled(int(number), to="ordinal")


def decimal(number: str) -> str:
    """Return "3.14" as "three point one four"; a number without a point is a cardinal."""
    whole, point, fraction = number.partition(".")
    if not point:
        return cardinal(whole)
    return f"{cardinal(whole) if whole else ''} point {digits(fraction)}".strip()


def digits(number: str) -> str:
    """Return "007" as "zero zero seven"."""
    return " ".join(_spelled(int(digit)) for digit in number if digit.isdecimal())


def characters(code: str) -> str:
    """Return "1F" as "one F"."""
    return " ".join(digits(one) if one.isdecimal() else letters(one) for one in code)


def year(number: str) -> str:
    """Return "1984" as "nineteen eighty-four"."""
    return _spelled(int(number), to="year")


def decade(number: str) -> str:
    """Return "1990" as "nineteen nineties", "90" as "nineties", "2000" as "two thousands"."""
    words = year(number) if len(number) == 4 else cardinal(number)
    return words[:-1] + "ies" if words.endswith("y") else words + "s"


def date(day: str, month: int, year_number: str = "") -> str:
    """Return a date in American usage: "March fourth, twenty twenty-four"."""
    spoken = f"{MONTHS[month - 1]} {ordinal(day)}"
    return f"{spoken}, {year(year_number)}" if year_number else spoken


def clock(hour: str, minute: str, second: str = "", half: str = "") -> str:
    """Return a time of day; `half` is "a", "p" or empty for the 24-hour clock."""
    spoken = cardinal(str(int(hour)))
    if int(minute):
        spoken += f" oh {cardinal(minute[1])}" if minute.startswith("0") else f" {cardinal(minute)}"
    elif not half and not float(second or 0):
        spoken += " o'clock" if 0 < int(hour) <= 12 else " hundred hours"
    if float(second or 0):
        unit = "second" if float(second) == 1 else "seconds"
        spoken += f" and {decimal(second.lstrip('0') if second[0] == '0' else second)} {unit}"
    return f"{spoken} {letters(half + 'm')}" if half else spoken


def fraction(numerator: str, denominator: str, *, part: bool = False) -> str:
    """Return "3/4" as "three quarters", and uncommon fractions as "three over forty".

    ``part``: it was written as one, "7/10ths", so it is no mark.
    """
    bottom = int(denominator)
    if numerator == denominator and bottom > 10:  # fifty fifty
        return f"{cardinal(numerator)} {cardinal(numerator)}"
    if not part and bottom in {10, 100} and int(numerator) > 1:  # marks, more often than parts
        return f"{cardinal(numerator)} out of {cardinal(denominator)}"
    if bottom < 2 or (not part and bottom > 20 and bottom not in {100, 1000}):
        return f"{cardinal(numerator)} over {cardinal(denominator)}"
    name = {2: "half", 4: "quarter"}.get(bottom) or ordinal(denominator)
    if int(numerator) != 1:
        name = "halves" if bottom == 2 else f"{name}s"
    return f"{cardinal(numerator)} {name}"


def money(symbol: str, number: str, magnitude: str = "") -> str:
    """Return "$", "42.50" as "forty-two dollars and fifty cents"."""
    one, several, cent, cents = CURRENCIES[symbol]
    if magnitude:
        return f"{decimal(number)} {MAGNITUDES[magnitude]} {several}"
    whole, point, part = number.replace(",", "").partition(".")
    if point and len(part) != 2:
        return f"{decimal(number)} {several}"
    spoken = []
    if int(whole or "0") or not int(part or "0"):
        spoken.append(f"{cardinal(whole)} {one if int(whole) == 1 else several}")
    if int(part or "0"):
        spoken.append(f"{cardinal(str(int(part)))} {cent if int(part) == 1 else cents}")
    return " and ".join(spoken)


def plural(unit: str) -> str:
    """Return "kilometer per hour" as "kilometers per hour"."""
    unit, per, rest = unit.partition(" per ")
    first, _, last = unit.rpartition(" ")
    if first == "degree":  # degrees Celsius
        first = "degrees"
        last = last
    elif unit not in IRREGULAR_PLURALS:
        last = IRREGULAR_PLURALS.get(last, last + "s")
    else:
        return IRREGULAR_PLURALS[unit] + per + rest
    return f"{first} {last}".strip() + per + rest


def letters(word: str) -> str:
    """Return the letters of a word spelled out."""
    # espeak-ng reads a single A as the article; "eh" sounds as the letter's name.
    return " ".join("eh" if letter in "aA" else letter.upper() for letter in word)


def roman(numeral: str) -> int:
    """Return the value of a roman numeral below forty, or 0.

    Larger ones are rare, and words could be mistaken for them.
    """
    tens = len(numeral) - len(numeral.lstrip("X"))
    ones = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
    rest = numeral[tens:]
    return tens * 10 + ones.index(rest) if tens <= 3 and rest in ones else 0


def _spelled(number: int, to: str = "cardinal") -> str:
    from num2words import num2words  # type: ignore[import-untyped]

    return str(num2words(number, to=to)).replace(",", "")  # a comma is a pause when spoken
