"""Rules for Markdown and HTML layout, spoken symbols, and the remaining white space."""

import re
import unicodedata
from typing import Final

from models.text.layout.blocks import BULLET, DASHED, LETTER, ROMAN, TITLE
from models.text.normalise import numbers as say
from models.text.normalise.mathematics import LATEX
from models.text.normalise.rule import BLANKS, Match, any_of, rule
from models.text.normalise.vocabulary import SYMBOLS


def _greek(match: Match) -> str:
    name = unicodedata.name(match[0]).partition("LETTER ")[2]
    name = name.removeprefix("FINAL ").partition(" WITH")[0].lower()
    return f" {name.replace('lamda', 'lambda')} "


def _number(match: Match) -> str:
    return f"\n{match[1] or match[2] or match[3]}, "


def _letter(match: Match) -> str:
    """Return the letter or the small roman numeral of an item, as it is said."""
    numeral = match[4] or match[5]
    letter = numeral.removesuffix(".") if numeral else match[1] or match[2] or match[3]
    counts = bool(numeral) or len(letter) > 1
    return f"\n{say.cardinal(str(say.roman(letter.upper()))) if counts else say.letters(letter)}, "


_TARGET: Final = r"\((?:<[^<>\n]*>|(?:[^()\s]|\([^()\s]*\))*)(?:\s+(?:\"[^\"\n]*\"|'[^'\n]*'))?\)"

LAYOUT: Final = (
    *LATEX,
    # Headings and list items become paragraphs.
    rule(r"^[ \t]*#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$", r"\n\1\n", re.MULTILINE),
    rule(rf"^[ \t]*{BULLET}[ \t]+(?:\[[ xX]\][ \t]+)?", "\n", re.MULTILINE),
    rule(
        r"^[ \t]*(?:[*_]{0,3}(?:(\d{1,3})[.)]|\((\d{1,2})\)(?=[ \t]+\D))[*_]{0,3}[ \t]+(?=\S)"
        rf"|(?={DASHED})(\d+)[ \t]+\S[ \t]+)",
        _number,
        re.MULTILINE,
    ),
    rule(
        rf"^[ \t]*(?:({LETTER})[.)]|([A-Z])\)|\(({LETTER})\)|({ROMAN})|([IVX])\.(?={TITLE}))"
        r"[ \t]+(?=\S)",
        _letter,
        re.MULTILINE,
    ),
    rule(r"(?<=\w)[ \t]+[•‣][ \t]+(?=\w)", ", "),  # items on one line
    rule(r"(?<=[^\s:\\])\\(?=\n)", ""),  # a line break of Markdown
    rule(r"^[ \t]*>[ \t]+", "", re.MULTILINE),
    rule(r"^[ \t]*\|[ \t]*", "", re.MULTILINE),  # a row of a table
    rule(r"[ \t]\|[ \t|]*$", "", re.MULTILINE),
    rule(r"[,;:]?[ \t]\|(?:[ \t]*\|)*[ \t]", ", "),
    rule(rf"!?\[\]{_TARGET}", ""),
    rule(rf"!\[([^\[\]\n]*)\]{_TARGET}", r" \1 "),
    rule(rf"\[([^\[\]\n]+)\]{_TARGET}", r"\1"),  # links keep their text
    rule(r"(?<![\w\]])\[([^\[\]\n]+)\] ?\[[^\[\]\n]{0,60}\]", r"\1"),
    rule(r"(?<!\w)(==|\+\+)(?=[^\s=+])([^=+\n]+)(?<=\S)\1(?!\w)", r"\2"),  # marked, inserted
    rule(r"</?[A-Za-z][^<>@]*>", " "),
)

RULES: Final = (
    rule("[\u0370-\u03ff\u1f00-\u1fff]", _greek),
    rule(
        rf"(?:{BLANKS})?(?:{any_of(SYMBOLS)})[ \t]*", lambda match: f" {SYMBOLS[match[0].strip()]} "
    ),
    rule(r"[^\w\s.,!?;:\"'()\[\]{}\u2014\u2013\u2026\ue000-\uf8ff-]|_", " "),
    rule(r"[ \t\r\f\v]+", " "),
    rule(r" (?=[,.;:!?)])", ""),
)
