"""Rules for Markdown and HTML layout, spoken symbols, and the remaining white space."""

import re
import unicodedata
from typing import Final

from models.text.normalise.rule import BLANKS, Match, any_of, rule
from models.text.normalise.vocabulary import SYMBOLS


def _greek(match: Match) -> str:
    name = unicodedata.name(match[0]).partition("LETTER ")[2]
    name = name.removeprefix("FINAL ").partition(" WITH")[0].lower()
    return f" {name.replace('lamda', 'lambda')} "


LAYOUT: Final = (
    # Headings and list items become paragraphs.
    rule(r"^[ \t]*#{1,6}[ \t]+(.*)$", r"\n\1\n", re.MULTILINE),
    rule(r"^[ \t]*[-*•‣][ \t]+", "\n", re.MULTILINE),
    rule(r"^[ \t]*(\d{1,3})[.)][ \t]+(?=[\"'(]*[^\W\d]|[\ue000-\uf8ff])", r"\n\1, ", re.MULTILINE),
    rule(r"^[ \t]*>[ \t]+", "", re.MULTILINE),
    rule(r"</?[A-Za-z][^<>@]*>", " "),
    rule(r"(?<!\S)(?:[:;=][-o']?|8[-o'])[()DPp/|\[\]](?!\S)", " "),  # :-)
    rule(r"!?\[([^\[\]\n]+)\]\((?:https?:|/|#)[^()\s]*\)", r"\1"),  # links keep their text
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
