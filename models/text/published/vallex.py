"""The readers of Plachtaa/VALL-E-X, and its English: texts to its phonemes, in two ways.

`vallex_reader` writes texts out as for every other model here and looks words up in the dictionary
of the training data; what it lacks is spoken by espeak-ng, in the model's symbols. `parity_reader`
does what the reference does, with all that it does not read: for comparing. Words of the dictionary
have the same phonemes in both.
"""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from models.text.characters import INLINE
from models.text.errors import TextError
from models.text.espeak import pronounce
from models.text.published.cmudict import pronunciation
from models.text.published.mandarin import chinese_reader
from models.text.published.openjtalk import japanese_reader
from models.text.published.reference_numbers import numbers_written_out
from models.text.published.tags import name_of
from models.text.reader import Reader, clean_english
from models.text.source import Rewritten

_TOKEN: Final = re.compile(rf"[^\W\d_]+(?:['-][^\W\d_]+)*'?|[.,!?~…{INLINE}]+|-+|\s+")
_FOLDS: Final = (
    (re.compile("[’‘ʼ]"), "'"),
    (re.compile(r"\.{3,}"), "…"),
    (re.compile("[;:]"), ","),
    (re.compile("\\s*[—–]\\s*"), " - "),
)
_DARK: Final = re.compile(r"l([^aeiouæɑɔəɛɪʊ ]*(?: |$))")
_ESPEAK: Final = (
    ("ɜː", "əɹ"), ("ɚ", "əɹ"), ("ɝ", "əɹ"), ("ː", ""), ("ɐ", "ə"), ("ʌ", "ə"), ("ɡ", "g"),
    ("ɾ", "t"), ("ʔ", "t"), ("ᵻ", "ɪ"), ("ɒ", "ɑ"), ("ɬ", "l"), ("r", "ɹ"), ("x", "k"),
    ("n\u0329", "ən"), ("l\u0329", "əl"),
)  # fmt: skip
_SOUNDS: Final = frozenset("abdefghijklmnopstuvwzæðŋɑɔəɛɪɹʃʊʒθˈˌ")


def vallex_reader(language: str) -> Reader:
    """Return the reader of a language; raises TextError if it has none, or lacks a package."""
    readers: dict[str, Callable[[], Reader]] = {
        "en": lambda: Reader(clean_english, _phonemize),
        "zh": chinese_reader,
        "ja": japanese_reader,
    }
    return _reader(language, readers)


def parity_reader(language: str) -> Reader:
    """Return what reads as the reference does; raises TextError as `vallex_reader`."""
    readers: dict[str, Callable[[], Reader]] = {
        "en": lambda: Reader(_as_it_is, reference_phonemes),
        "zh": partial(chinese_reader, as_reference=True),
        "ja": partial(japanese_reader, as_reference=True),
    }
    return _reader(language, readers)


def _reader(language: str, readers: Mapping[str, Callable[[], Reader]]) -> Reader:
    if language not in readers:
        raise TextError(f"the model does not speak {name_of(language)}")
    return readers[language]()


def _as_it_is(text: Rewritten) -> Rewritten:
    return text


def _phonemize(text: str) -> str:
    """Return the phonemes of words and punctuation; characters of the Private Use Area are kept."""
    for pattern, mark in _FOLDS:
        text = pattern.sub(mark, text)
    tokens = _TOKEN.findall(text)
    spoken = _words(list(dict.fromkeys(one for one in tokens if one[0].isalpha())))
    joined = " ".join("".join(spoken.get(one, one) for one in tokens).split())
    return _DARK.sub(r"ɫ\1", joined)


def _words(words: list[str]) -> dict[str, str]:
    """Return the phonemes of each word: of the dictionary, of its parts, or of espeak-ng."""
    parts = {word: _parts(word.lower()) for word in words}
    unknown = dict.fromkeys(
        one for found in parts.values() for one in found if pronunciation(one) is None
    )
    guessed = dict(zip(unknown, map(_folded, pronounce([*unknown], "en-us")), strict=True))
    return {
        word: " ".join(pronunciation(one) or guessed[one] for one in found)
        for word, found in parts.items()
    }


def _parts(word: str) -> list[str]:
    """Return a word in lower case as one of the dictionary, else what hyphens part it into."""
    word = unicodedata.normalize("NFKD", word).encode("ascii", "ignore").decode() or word
    for whole in (word, word.removesuffix("'")):
        if pronunciation(whole) is not None:
            return [whole]
    return [one for one in word.split("-") if one]


def _folded(phonemes: str) -> str:
    """Return phonemes of espeak-ng in the symbols that the model knows from English."""
    for theirs, ours in _ESPEAK:
        phonemes = phonemes.replace(theirs, ours)
    return "".join(one for one in phonemes if one in _SOUNDS)


def reference_phonemes(text: str) -> str:
    """Return the phonemes that the reference makes of an English text, with its mistakes.

    Of letters that are not ASCII it knows more than the few folded here.
    """
    words = [_reference_word(word) for word in numbers_written_out(_ascii(text).lower()).split()]
    phonemes = re.sub(r"\s+", " ", " ".join(words))
    phonemes = _DARK.sub(r"ɫ\1", phonemes).replace("r", "ɹ").replace("...", "…").rstrip()
    return re.sub(r"([^.,!?\-…~])$", r"\1.", phonemes)


def _reference_word(word: str) -> str:
    """Return the phonemes of a word with the marks around it; an unknown one with a star."""
    stripped = word.strip("!\"#$%&'()*+,-./:;<=>/?@[\\]^_`{|}~«» ")  # noqa: B005
    before = re.search(r"^([^a-z0-9]+)[a-z]", word)
    after = re.search(r"[a-z]([^a-z0-9]+)$", word)
    spoken = pronunciation(stripped)
    if spoken is None:
        spoken = f"{stripped}*" if re.sub(r"\d", "", stripped) else stripped
    return f"{before[1] if before else ''}{spoken}{after[1] if after else ''}"


_SIGNS: Final = str.maketrans({
    "£": "PS", "€": "EUR", "’": "'", "‘": "'", "“": '"', "”": '"', "—": "--", "–": "-", "…": "...",
})  # fmt: skip


def _ascii(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.translate(_SIGNS))
    return plain.encode("ascii", "ignore").decode()
