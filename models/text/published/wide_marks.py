"""Punctuation of Chinese and Japanese texts, in the marks that Plachtaa/VALL-E-X knows."""

# ruff: noqa: RUF001 - punctuation of every script

import re
from typing import Final

from models.text.characters import INLINE

GROUPED: Final = re.compile(r"(?<=\d)[,，](?=\d{3}(?!\d))")
"""The mark between the thousands of a number."""

_CLAUSES: Final = re.compile("[、；：]")
_MARKS: Final = str.maketrans({
    "，": ",", "。": ".", "！": "!", "？": "?", "—": "-", "～": "~", "〜": "~", "・": " ",
})  # fmt: skip
_UNKNOWN: Final = re.compile(rf"[^\w ,.!?~…\-`^#*⁼→↑↓{INLINE}]")
_OPEN_END: Final = re.compile(r"(?<=[^.,!?\-…~])$")


def clause_marks(text: str) -> str:
    """Return a text whose clauses all end with a wide comma."""
    return _CLAUSES.sub("，", text)


def plain_marks(text: str) -> str:
    """Return a text with the marks of ASCII."""
    return clause_marks(text).translate(_MARKS).replace("...", "…")


def closed(phonemes: str) -> str:
    """Return phonemes that end with a mark, a full stop where there was none."""
    return _OPEN_END.sub(".", phonemes.rstrip())


def known_symbols(phonemes: str) -> str:
    """Return phonemes without marks that the model has no symbol for, as quotes."""
    return _UNKNOWN.sub(" ", phonemes)
