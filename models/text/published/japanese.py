"""Conversion of kanji to hiragana, which espeak-ng can read.

The reference uses pykakasi (GPL); here it is Janome (Apache-2.0), of the extra `japanese`. Both
look up readings in a dictionary and may differ for words with several.
"""

import re
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Final

from models.text.errors import TextError

if TYPE_CHECKING:
    from janome.tokenizer import Tokenizer

_KANJI: Final = re.compile("[\u3005\u3400-\u9fff\uf900-\ufaff]")  # with the iteration mark
_HIRAGANA: Final = {katakana: katakana - 0x60 for katakana in range(0x30A1, 0x30F7)}

_JANOME: Final = Lock()


def to_hiragana(text: str) -> str:
    """Convert kanji and katakana to hiragana; particles keep their spelling (は, not わ).

    Raises TextError if Janome is needed and not installed, or a kanji has no known reading.
    """
    if _KANJI.search(text):
        text = "".join(map(_read, re.split(r"(\s+)", text)))
        if unknown := dict.fromkeys(_KANJI.findall(text)):
            raise TextError(f"no reading is known for {', '.join(map(repr, unknown))}")
    return text.translate(_HIRAGANA)


def unread_kanji(text: str) -> list[str]:
    """Return the kanji of a text of which no reading is known.

    Raises TextError if Janome is needed and not installed.
    """
    if not _KANJI.search(text):
        return []
    return _KANJI.findall("".join(map(_read, re.split(r"(\s+)", text))))


def _read(text: str) -> str:
    """Return a text without spaces with its words of kanji as katakana."""
    if not _KANJI.search(text):
        return text
    with _JANOME:
        words = list(_tokenizer().tokenize(text))
    return "".join(
        word.reading if _KANJI.search(word.surface) and word.reading != "*" else word.surface
        for word in words
    )


@cache
def _tokenizer() -> "Tokenizer":
    """Load Janome, which takes a second; call with the lock held."""
    try:
        from janome.tokenizer import Tokenizer
    except ImportError as error:
        raise TextError(
            "kanji cannot be read here: install the extra `japanese`, or write hiragana"
        ) from error
    return Tokenizer()
