"""Parsing of `[[həlˈoʊ]]`, `[pause:0.5s]`, `[voice:emma]` and `[rate:0.8]`.

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
MIN_RATE: Final = 0.25
MAX_RATE: Final = 4.0
_FIRST_PLACE = 0xE000
_PLACES = 0x1900
_PRIVATE: Final = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff]")
_PHONEMES: Final = re.compile(r"\[\[(.*?)\]\](?!\])", re.DOTALL)
_MARKUP: Final = re.compile(
    r"\[\[(?P<phonemes>.*?)\]\](?!\])"
    r"|\[pause:(?P<number>\d{1,6}(?:\.\d{1,6})?)(?P<unit>ms|s)\]"
    r"|\[voice:(?P<voice>[^\[\]\n]{1,200})\]"
    # Marks after it end what is before it.
    r"|\[rate:(?P<rate>\d{1,2}(?:\.\d{1,6})?)\](?P<marks>[,.!?;:…]*+)"
    r"|(?P<malformed>\[\[|\[\s*(?:pause|voice|rate)\s*[:\]])[^\]]{0,40}\]?",
    re.DOTALL | re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True)
class Stretch:
    """Text up to a pause, another speaker or another rate."""

    text: str
    pause_after_s: float | None  # silence after it; None without a pause
    voice: str | None = None  # who speaks it; None: the voice of the request
    rate: float = 1.0
    goes_on: bool = False  # whether the next one is only spoken at another rate


@dataclass(frozen=True)
class Inline:
    """The inline phonemes of a text, by the character that replaces each word of them."""

    words: dict[str, str]

    def pronounce(self, phonemes: str) -> str:
        """Replace placeholder characters by their phonemes."""
        return _PRIVATE.sub(lambda match: self.words[match[0]], phonemes)

    def hide(self, text: str) -> str:
        """Replace `[[phonemes]]` that are known to be valid by placeholder characters."""
        return _PHONEMES.sub(lambda match: " ".join(map(self.placed, match[1].split())), text)

    def placed(self, word: str) -> str:
        """Return the placeholder of a word of phonemes; raises TextError if there are too many."""
        if len(self.words) == _PLACES:
            raise TextError(f"more than {_PLACES} words of inline phonemes")
        place = chr(_FIRST_PLACE + len(self.words))
        self.words[place] = word
        return place

    def write(self, text: str) -> str:
        """Replace placeholder characters by the original markup."""
        return _PRIVATE.sub(lambda match: f"[[{self.words[match[0]]}]]", text).replace("]] [[", " ")


def parse_markup(
    text: str, symbols: Collection[str], max_phonemes: int
) -> tuple[list[Stretch], Inline]:
    """Split a text at its pauses and replace its inline phonemes by placeholders.

    Raises TextError if markup is malformed, a phoneme is not one of `symbols`, a word of phonemes
    is longer than `max_phonemes`, a pause is longer than MAX_PAUSE_S, or a rate is not from
    MIN_RATE to MAX_RATE.
    """
    text = _PRIVATE.sub("", text)
    inline = Inline({})
    stretches: list[Stretch] = []
    written = ""
    start = 0
    voice: str | None = None
    rate = 1.0
    for match in _MARKUP.finditer(text):
        written += text[start : match.start()]
        start = match.end()
        if match["malformed"]:
            raise TextError(
                f"malformed markup {match[0]!r}; write [[phonemes]], [pause:0.5s], [pause:500ms],"
                " [voice:name] or [rate:0.8]"
            )
        if match["phonemes"] is not None:
            words = _phoneme_words(match["phonemes"], symbols, max_phonemes)
            written += " ".join(map(inline.placed, words))
        elif match["voice"] is not None:
            stretches.append(Stretch(written, None, voice, rate))
            written = ""
            voice = match["voice"].strip()
        elif match["rate"] is not None:
            written = written.rstrip() + match["marks"] if match["marks"] else written
            if (changed := _rate(match)) != rate:
                stretches.append(Stretch(written, None, voice, rate, goes_on=True))
                written = ""
                rate = changed
        else:
            stretches.append(Stretch(written, _pause_s(match), voice, rate))
            written = ""
    return [*stretches, Stretch(written + text[start:], None, voice, rate)], inline


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


def _rate(match: re.Match[str]) -> float:
    rate = float(match["rate"])
    if not MIN_RATE <= rate <= MAX_RATE:
        raise TextError(f"[rate:{match['rate']}] is not from {MIN_RATE:g} to {MAX_RATE:g}")
    return rate
