"""Chinese as Plachtaa/VALL-E-X was trained on it: Bopomofo of each word, in the model's symbols.

Words are found by jieba, their readings by pypinyin, numbers are written out by cn2an: packages of
the extra `vallex`. All are under the MIT licence. Other versions may read some words otherwise.
"""

# ruff: noqa: RUF001 - IPA and Bopomofo are full of letters that look like Latin ones

import re
from functools import cache, partial
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from models.text.errors import TextError
from models.text.published.wide_marks import clause_marks, plain_marks
from models.text.published.wide_reader import wide_reader
from models.text.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?)[%％]")
_MOST_DIGITS: Final = 16  # of a number that cn2an writes out
_HAN: Final = re.compile("[一-鿿]")
_IDEOGRAPH: Final = re.compile("[〇㐀-鿿豈-﫿]")
_TONES: Final = {"ˉ": "→", "ˊ": "↑", "ˇ": "↓↑", "ˋ": "↓", "˙": ""}
_TONELESS: Final = re.compile("(?<=[ㄅ-ㄩ])$")
_LETTERS: Final = {
    "a": "ㄟˉ", "b": "ㄅㄧˋ", "c": "ㄙㄧˉ", "d": "ㄉㄧˋ", "e": "ㄧˋ", "f": "ㄝˊㄈㄨˋ", "g": "ㄐㄧˋ",
    "h": "ㄝˇㄑㄩˋ", "i": "ㄞˋ", "j": "ㄐㄟˋ", "k": "ㄎㄟˋ", "l": "ㄝˊㄛˋ", "m": "ㄝˊㄇㄨˋ",
    "n": "ㄣˉ", "o": "ㄡˉ", "p": "ㄆㄧˉ", "q": "ㄎㄧㄡˉ", "r": "ㄚˋ", "s": "ㄝˊㄙˋ", "t": "ㄊㄧˋ",
    "u": "ㄧㄡˉ", "v": "ㄨㄧˉ", "w": "ㄉㄚˋㄅㄨˋㄌㄧㄡˋ", "x": "ㄝˉㄎㄨˋㄙˋ", "y": "ㄨㄞˋ",
    "z": "ㄗㄟˋ",
}  # fmt: skip
"""The names of Latin letters as they are said in Chinese; those but F, I and W are unchecked."""

_INITIALS: Final = {
    "ㄅ": "p⁼", "ㄆ": "pʰ", "ㄇ": "m", "ㄈ": "f", "ㄉ": "t⁼", "ㄊ": "tʰ", "ㄋ": "n", "ㄌ": "l",
    "ㄍ": "k⁼", "ㄎ": "kʰ", "ㄏ": "x", "ㄐ": "tʃ⁼", "ㄑ": "tʃʰ", "ㄒ": "ʃ", "ㄓ": "ts`⁼",
    "ㄔ": "ts`ʰ", "ㄕ": "s`", "ㄖ": "ɹ`", "ㄗ": "ts⁼", "ㄘ": "tsʰ", "ㄙ": "s",
}  # fmt: skip
_FINALS: Final = {
    "ㄚ": "a", "ㄛ": "o", "ㄜ": "ə", "ㄝ": "ɛ", "ㄞ": "aɪ", "ㄟ": "eɪ", "ㄠ": "ɑʊ", "ㄡ": "oʊ",
    "ㄢ": "an", "ㄣ": "ən", "ㄤ": "ɑŋ", "ㄥ": "əŋ", "ㄦ": "əɹ`", "ㄧ": "i", "ㄨ": "u", "ㄩ": "ɥ",
    "ㄧㄢ": "jɛn", "ㄩㄢ": "ɥæn", "ㄧㄣ": "in", "ㄩㄣ": "ɥn", "ㄧㄥ": "iŋ", "ㄨㄥ": "ʊŋ",
    "ㄩㄥ": "jʊŋ",
}  # fmt: skip
_SYLLABLES: Final = {"ㄅㄛ": "p⁼wo", "ㄆㄛ": "pʰwo", "ㄇㄛ": "mwo", "ㄈㄛ": "fwo"}
_SPELLED: Final = {**_SYLLABLES, **_INITIALS, **_FINALS, **_TONES}
_BOPOMOFO: Final = re.compile("|".join(sorted(_SPELLED, key=len, reverse=True)))
_GLIDES: Final = ((re.compile("i(?=[aoe])"), "j"), (re.compile("u(?=[aoəe])"), "w"))
_SYLLABIC: Final = (  # consonants without a vowel
    (re.compile("((?:s|(?<!ə)ɹ)`[⁼ʰ]?)(?=[→↓↑ ]|$)"), r"\1ɹ`"),
    (re.compile("(s[⁼ʰ]?)(?=[→↓↑ ]|$)"), r"\1ɹ"),
)


class _Packages(NamedTuple):
    words: "Callable[[str], Iterable[str]]"
    readings: "Callable[[str], list[str]]"
    number: "Callable[[str], str]"


_LOADING: Final = Lock()


@cache
def _packages() -> _Packages:
    """Load the packages, which takes a second; call with the lock held. Raises TextError."""
    try:
        import cn2an
        import jieba
        from pypinyin import Style, lazy_pinyin
    except ImportError as error:
        raise TextError(
            f"Chinese cannot be read here: {error.name} is not installed; scripts/install vallex"
        ) from error
    words = jieba.Tokenizer()
    # Else what it computed is read from a file of /tmp, where anybody may have put another.
    with TemporaryDirectory() as folder:
        words.tmp_dir = folder
        jieba.setLogLevel("WARNING")
        words.initialize()
    return _Packages(
        words.cut,
        partial(lazy_pinyin, style=Style.BOPOMOFO, errors="ignore"),
        cn2an.an2cn,
    )


def chinese_reader(*, as_reference: bool = False) -> Reader:
    """Return the reader of Chinese; ``as_reference`` with all that the reference does not read.

    Raises TextError if a package of the extra is not installed.
    """
    with _LOADING:
        _packages()
    return wide_reader(
        "zh",
        mandarin_phonemes,
        lambda text: _PERCENT.sub(r"百分之\1", text),
        _unread,
        as_reference=as_reference,
    )


def _unread(text: str) -> list[str]:
    """Return the ideographs of a text that have no reading."""
    readings = _packages().readings
    return [one for one in dict.fromkeys(text) if _IDEOGRAPH.match(one) and not readings(one)]


def _written_out(digits: str) -> str:
    number = _packages().number
    if len(digits) <= _MOST_DIGITS:
        return number(digits)
    return "".join(one if one == "." else number(one) for one in digits).replace(".", "点")


def mandarin_phonemes(text: str) -> str:
    """Return the phonemes of a Chinese text; what is no Chinese, letter or number stays.

    Raises TextError if a package of the extra is not installed.
    """
    found = _packages()
    text = _NUMBER.sub(lambda match: _written_out(match[0]), clause_marks(text))
    spelled = ""
    for word in found.words(text):
        if not _HAN.search(word):
            spelled += word
            continue
        syllables = [_TONELESS.sub("ˉ", one) for one in found.readings(word)]
        spelled += f"{' ' if spelled else ''}{''.join(syllables)}"
    letters = "".join(_LETTERS.get(one.lower(), one) for one in spelled)
    return plain_marks(ipa_of_bopomofo(letters))


def ipa_of_bopomofo(text: str) -> str:
    """Return Bopomofo with tone marks in the model's symbols; all else stays."""
    text = _BOPOMOFO.sub(lambda match: _SPELLED[match[0]], text)
    for pattern, spoken in (*_GLIDES, *_SYLLABIC):
        text = pattern.sub(spoken, text)
    return text
