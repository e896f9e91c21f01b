"""English words and punctuation to phonemes, for the built-in model.

The inventory and the phonemes of a sentence are part of a trained model; changing either makes its
weights useless. `tests/models/text/test_phonemes.py` pins both.
"""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

import re
from typing import Final

from models.text.espeak import pronounce

ENGLISH_SYMBOLS: Final[tuple[str, ...]] = tuple(
    " ,.!?;:—…\"'()-ˈˌːabdefhijklmnopstuvwxzæðŋɐɑɔəɚɛɜɡɪɬɹɾʃʊʌʒʔθᵻcqryøœɒçɣɲʁβχɕ\u0303\u0329ʲʰ"
)
"""Every code point of the built-in model's phoneme strings, in the order of their ids."""

_INVENTORY: Final = frozenset(ENGLISH_SYMBOLS)
_FOLDS: Final = (
    (re.compile("[“”„‟«»″]"), '"'),
    (re.compile("[‘’‚‛′]"), "'"),
    (re.compile(r"[\[{]"), "("),
    (re.compile(r"[\]}]"), ")"),
    (re.compile(r"\.{3,}"), "…"),
    (re.compile(r"(?:(?<!\s)\s++)?(?:--+|[–—―])\s*|(?<!\s)\s++-\s+"), " — "),
    (re.compile(r"[¡¿]"), ""),
    (re.compile(r"\s+"), " "),
)
# A comma, full stop or colon between two digits belongs to the number.
# A character of the Private Use Area stands for inline phonemes.
_MARKS: Final = re.compile(
    r'((?:(?<!\s)\s++)?(?:(?<![0-9])[.,:]|[.,:](?![0-9])|[!?;—…"()\ue000-\uf8ff])'
    r'[\s.,:!?;—…"()\ue000-\uf8ff]*)'
)
_OPENING: Final = re.compile(r'\s["(\ue000-\uf8ff]')
_DETACHED: Final = re.compile(r"[^\w\s]+\s")
_UNUTTERED: Final = re.compile(r"[^\w]|_")
_FINAL_ARTICLE: Final = re.compile(r"(?:^|\s)a$", re.IGNORECASE)


def phonemize(text: str) -> str:
    """Return the phonemes of a text.

    Punctuation is kept, folded to the inventory (curly quotes to straight ones, dashes to an em
    dash, three dots to an ellipsis). Characters of the Private Use Area are kept.
    """
    for pattern, mark in _FOLDS:
        text = pattern.sub(mark, text)
    # phonemizer can keep punctuation itself, but misplaces it when a piece is silent; splitting at
    # punctuation first avoids that. Words come first, then words and punctuation alternate.
    pieces = _MARKS.split(text.strip())
    words = [piece for piece in pieces[::2] if _UNUTTERED.sub("", piece)]
    spoken = iter(pronounce(words, "en-us"))
    out: list[str] = []
    for number, piece in enumerate(pieces):
        if number % 2:
            out.append(piece)
        elif _UNUTTERED.sub("", piece):
            sound = next(spoken)
            following = pieces[number + 1] if number + 1 < len(pieces) else ""
            if _OPENING.match(following) and _FINAL_ARTICLE.search(piece):
                # espeak-ng reads "a" at the end of a clause as the letter; before a quotation or
                # a bracket it is the article.
                sound = sound.removesuffix("ˈeɪ") + "ɐ"
            if _DETACHED.match(piece) and out and not out[-1].endswith(" "):
                out.append(" ")  # 'Go.' she said: the closing quote hid the space
            out.append(sound)
    # Symbols outside the inventory, which are rare, are dropped.
    symbols = (s for s in "".join(out) if s in _INVENTORY or "\ue000" <= s <= "\uf8ff")
    return " ".join("".join(symbols).split())
