"""Parsing of inline phonemes `[[həlˈoʊ]]`, pauses `[pause:0.5s]` and speakers `[voice:emma]`.

Each word of inline phonemes is replaced by a character of the Private Use Area, which normalisation
and splitting treat as an opaque word.
"""

# ruff: noqa: RUF002 - IPA is full of letters that look like Latin ones

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from models.text.errors import TextError

MAX_PAUSE_S: Final = 10.0
_FIRST_PLACE, _PLACES = 0xE000, 0x1900
_PRIVATE: Final = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff]")
_MARKUP: Final = re.compile(
    r"\[\[(?P<phonemes>.*?)\]\](?!\])"
    r"|\[pause:(?P<number>\d{1,6}(?:\.\d{1,6})?)(?P<unit>ms|s)\]"
    r"|\[voice:(?P<voice>[^\[\]\n]{1,200})\]"
    r"|(?P<malformed>\[\[|\[\s*(?:pause|voice)\s*[:\]])[^\]]{0,40}\]?",
    re.DOTALL | re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True)
class Stretch:
    """Text up to a pause or another speaker.

    Attributes:
        text: The text.
        pause_after_s: Silence after it; None without a pause.
        voice: Who speaks it; None: as before.
    """

    text: str
    pause_after_s: float | None
    voice: str | None = None


@dataclass(frozen=True)
class Inline:
    """The inline phonemes of a text, by the character that replaces each word of them."""

    words: dict[str, str]

    def pronounce(self, phonemes: str) -> str:
        """Replace placeholder characters by their phonemes."""
        return _PRIVATE.sub(lambda match: self.words[match[0]], phonemes)

    def write(self, text: str) -> str:
        """Replace placeholder characters by the original markup."""
        return _PRIVATE.sub(lambda match: f"[[{self.words[match[0]]}]]", text).replace("]] [[", " ")


def parse(text: str, symbols: Collection[str], max_phonemes: int) -> tuple[list[Stretch], Inline]:
    """Split a text at its pauses and replace its inline phonemes by placeholders.

    Args:
        text: With markup.
        symbols: Phonemes that the model knows.
        max_phonemes: Longest word of inline phonemes.

    Raises:
        TextError: Markup is malformed, a phoneme is not one of `symbols`, a word of phonemes is
            longer than `max_phonemes`, or a pause is longer than MAX_PAUSE_S.
    """
    text = _PRIVATE.sub("", text)
    words: dict[str, str] = {}
    stretches: list[Stretch] = []
    written, start = "", 0
    voice: str | None = None
    for match in _MARKUP.finditer(text):
        written += text[start : match.start()]
        start = match.end()
        if match["malformed"]:
            raise TextError(
                f"malformed markup {match[0]!r}; write [[phonemes]], [pause:0.5s], [pause:500ms] or"
                " [voice:name]"
            )
        if match["phonemes"] is not None:
            places = []
            for word in _phoneme_words(match["phonemes"], symbols, max_phonemes):
                if len(words) == _PLACES:
                    raise TextError(f"more than {_PLACES} words of inline phonemes")
                places.append(chr(_FIRST_PLACE + len(words)))
                words[places[-1]] = word
            written += " ".join(places)
        elif match["voice"] is not None:
            stretches.append(Stretch(written, None, voice))
            written, voice = "", match["voice"].strip()
        else:
            stretches.append(Stretch(written, _pause_s(match), voice))
            written, voice = "", None
    return [*stretches, Stretch(written + text[start:], None, voice)], Inline(words)


def _phoneme_words(phonemes: str, symbols: Collection[str], max_phonemes: int) -> list[str]:
    words = phonemes.split()
    if not words:
        raise TextError("empty inline phonemes [[]]")
    unknown = dict.fromkeys(symbol for word in words for symbol in word if symbol not in symbols)
    if unknown:
        names = ", ".join(f"{symbol!r} (U+{ord(symbol):04X})" for symbol in unknown)
        raise TextError(f"unknown symbols in inline phonemes: {names}")
    if any(len(word) > max_phonemes for word in words):
        raise TextError(f"a word of inline phonemes is longer than {max_phonemes} symbols")
    return words


def _pause_s(match: re.Match[str]) -> float:
    pause_s = float(match["number"]) / (1000 if match["unit"].lower() == "ms" else 1)
    if pause_s > MAX_PAUSE_S:
        raise TextError(f"{match[0]} is longer than {MAX_PAUSE_S:g} s")
    return pause_s
