"""The languages of public VALL-E checkpoints, with the settings that these were trained with.

The reference hands whole lines to phonemizer (espeak-ng voices, stress, punctuation kept), which
loses its place when a piece has no sound and drops what follows a mark inside a word. Cutting at
the marks first gives the same phonemes and loses nothing.
"""

# ruff: noqa: RUF001 - punctuation of every script

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from models.text.characters import INLINE, clean
from models.text.errors import TextError
from models.text.espeak import pronounce
from models.text.japanese import to_hiragana
from models.text.normalise import normalise
from models.text.reader import Reader

# phonemizer's own marks; a full stop, comma or colon between two digits belongs to the number.
_MARK: Final = rf"(?:(?<![0-9])[.,:]|[.,:](?![0-9])|[;!?¡¿—…\"«»“”(){{}}\[\]{INLINE}])"
_MARKS: Final = re.compile(rf"((?:(?<!\s)\s++)?{_MARK}(?:\s|{_MARK})*)")
_UNUTTERED: Final = re.compile(r"[^\w]|_")
_WIDE_MARKS: Final = "，。、！？：；（）「」『』《》"
_SENTENCE: Final = re.compile('[。！？!?]+[」』》）)”"]*')
_CLAUSE: Final = re.compile("[，、：；]")
_CHINESE_TONES: Final = dict(zip(map(ord, "12345"), "\u02c7\u02c9\u02ca\u02cb_", strict=True))


@dataclass(frozen=True)
class Language:
    """How espeak-ng is asked to read a language.

    Attributes:
        voice: The voice of espeak-ng.
        scripts: Beginnings of the Unicode names of letters that it reads.
        spaced: Whether words and sentences stand apart.
        spell: Writes words as the voice can read them; raises TextError where it cannot.
        tones: How symbols of espeak-ng are rewritten.
    """

    voice: str
    scripts: tuple[str, ...] = ("LATIN ",)
    spaced: bool = True
    spell: Callable[[str], str] | None = None
    tones: dict[int, str] | None = None

    def reads(self, letter: str) -> bool:
        """Tell whether a letter is of this language; rare ideographs are in no dictionary."""
        return ord(letter) < 0x10000 and unicodedata.name(letter, "").startswith(self.scripts)


_HAN: Final = ("CJK ", "IDEOGRAPHIC ITERATION MARK", "LATIN ")
LANGUAGES: Final = {
    "en": Language("en-us"),
    "ja": Language("ja", ("HIRAGANA ", "KATAKANA", *_HAN), spaced=False, spell=to_hiragana),
    "de": Language("de"),
    "fr": Language("fr-fr"),
    "zh": Language("cmn-latn-pinyin", _HAN, spaced=False, tones=_CHINESE_TONES),
    "ko": Language("ko", ("HANGUL ", "LATIN ")),
}
"""Each language of the published models, in the order of their ids."""


def reference_reader(code: str) -> Reader:
    """Return how public checkpoints read a language.

    Raises:
        TextError: They do not.
    """
    language = LANGUAGES.get(code)
    if language is None:
        raise TextError(f"language {code!r} is not supported; choose from {sorted(LANGUAGES)}")
    if code == "en":
        return Reader(lambda text: normalise(clean(text)), lambda text: _phonemize(text, language))
    # Wide punctuation is not folded: espeak-ng swallowed it in training too, so that an utterance
    # without any mark is what these models know.
    return Reader(
        lambda text: _clean(text, language),
        lambda text: _phonemize(text, language),
        closes=language.spaced,
    )


def _clean(text: str, language: Language) -> str:
    """Return the text folded, with sentences and clauses apart.

    Raises:
        TextError: It holds letters that the language's voice does not read.
    """
    if language.spaced:
        return clean(text, reads=language.reads)
    text = clean(text, reads=language.reads, intact=_WIDE_MARKS)
    if language.spell is not None:
        language.spell(text)  # what has no reading is refused now, not when it is spoken
    return _CLAUSE.sub(r"\g<0> ", _SENTENCE.sub("\\g<0>\n\n", text))


def _phonemize(text: str, language: Language) -> str:
    """Return the phonemes of a text, its marks kept as they are written.

    Raises:
        TextError: Its spelling is not known.
    """
    if language.spell is not None:
        text = language.spell(text)
    pieces = _MARKS.split(" ".join(text.split()))
    words = [piece for piece in pieces[::2] if _UNUTTERED.sub("", piece)]
    spoken = iter(pronounce(words, language.voice, verbatim=True))
    for number in range(0, len(pieces), 2):
        pieces[number] = next(spoken) if _UNUTTERED.sub("", pieces[number]) else ""
    phonemes = " ".join("".join(pieces).split())
    return phonemes if language.tones is None else phonemes.translate(language.tones)
