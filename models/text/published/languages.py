"""The languages of public VALL-E checkpoints, phonemised as in their training.

The reference passes whole lines to phonemizer (espeak-ng voices, stress, punctuation kept), which
misplaces punctuation when a piece is silent and drops the rest of a word after a mark inside it.
Splitting at punctuation first gives the same phonemes without losses.
"""

# ruff: noqa: RUF001 - punctuation of every script

import re
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from models.text.characters import INLINE, cleaned
from models.text.errors import TextError
from models.text.espeak import pronounce
from models.text.published.japanese import to_hiragana, unread_kanji
from models.text.reader import Reader, clean_english
from models.text.source import Rewritten

# phonemizer's own marks; a full stop, comma or colon between two digits belongs to the number.
_MARK: Final = rf"(?:(?<![0-9])[.,:]|[.,:](?![0-9])|[;!?¡¿—…\"«»“”(){{}}\[\]{INLINE}])"
_MARKS: Final = re.compile(rf"((?:(?<!\s)\s++)?{_MARK}(?:\s|{_MARK})*)")
_UNUTTERED: Final = re.compile(r"[^\w]|_")
_WIDE_MARKS: Final = "，。、！？：；（）「」『』《》"
_SENTENCE: Final = re.compile('[。！？!?]+[」』》）)”"]*')
_CLAUSE: Final = re.compile("[，、：；]")
_PLAIN: Final = {ord("ˈ"): None, ord("ˌ"): None}
_CHINESE_TONES: Final = dict(zip(map(ord, "12345"), "\u02c7\u02c9\u02ca\u02cb_", strict=True))


@dataclass(frozen=True)
class Language:
    """How a language is phonemised."""

    voice: str  # the voice of espeak-ng
    scripts: tuple[str, ...] = ("LATIN ",)  # prefixes of the Unicode names of its letters
    spaced: bool = True  # whether words are separated by spaces
    # converts words to a script that the voice reads; raises TextError if it cannot
    spell: Callable[[str], str] | None = None
    # the characters of a text that ``spell`` cannot convert
    unspelt: Callable[[str], Collection[str]] | None = None
    tones: dict[int, str] | None = None  # translation table of espeak-ng's tone symbols

    def reads(self, letter: str) -> bool:
        """Return whether a letter belongs to this language; ideographs beyond the BMP do not."""
        return ord(letter) < 0x10000 and unicodedata.name(letter, "").startswith(self.scripts)


_HAN: Final = ("CJK ", "IDEOGRAPHIC ITERATION MARK", "LATIN ")
LANGUAGES: Final = {
    "en": Language("en-us"),
    "ja": Language(
        "ja",
        ("HIRAGANA ", "KATAKANA", *_HAN),
        spaced=False,
        spell=to_hiragana,
        unspelt=unread_kanji,
    ),
    "de": Language("de"),
    "fr": Language("fr-fr"),
    "zh": Language("cmn-latn-pinyin", _HAN, spaced=False, tones=_CHINESE_TONES),
    "ko": Language("ko", ("HANGUL ", "LATIN ")),
}
"""The languages of the published models, in the order of their ids."""


def reference_reader(code: str) -> Reader:
    """Return the reader of a language for public checkpoints; raises TextError if it has none."""
    language = LANGUAGES.get(code)
    if language is None:
        raise TextError(f"language {code!r} is not supported; choose from {sorted(LANGUAGES)}")
    clean = clean_english if code == "en" else partial(cleaned_as, language=language)
    return Reader(clean, partial(_phonemize, language=language), closes=language.spaced)


def plain_reader(code: str) -> Reader:
    """Return the reader of English for lifeiteng/vall-e: without stress."""
    reader = reference_reader(code)
    return replace(reader, phonemize=lambda text: reader.phonemize(text).translate(_PLAIN))


def cleaned_as(text: Rewritten, language: Language) -> Rewritten:
    """Return the text with folded characters and with spaces after sentences and clauses."""
    if language.spaced:
        return cleaned(text, reads=language.reads)
    # Wide punctuation is not folded: espeak-ng dropped it in training too, so these models know
    # utterances without punctuation.
    text = cleaned(text, reads=language.reads, intact=_WIDE_MARKS)
    if language.unspelt is not None and (unread := language.unspelt(text.text)):
        text = text.sub(re.compile(f"[{''.join(unread)}]"), " ")
    return text.sub(_SENTENCE, "\\g<0>\n\n").sub(_CLAUSE, r"\g<0> ")


def _phonemize(text: str, language: Language) -> str:
    """Return the phonemes of a text, keeping its punctuation."""
    if language.spell is not None:
        text = language.spell(text)
    pieces = _MARKS.split(" ".join(text.split()))
    words = [piece for piece in pieces[::2] if _UNUTTERED.sub("", piece)]
    spoken = iter(pronounce(words, language.voice, verbatim=True))
    for number in range(0, len(pieces), 2):
        pieces[number] = next(spoken) if _UNUTTERED.sub("", pieces[number]) else ""
    phonemes = " ".join("".join(pieces).split())
    return phonemes if language.tones is None else phonemes.translate(language.tones)
