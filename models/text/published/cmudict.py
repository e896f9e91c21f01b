"""American pronunciations of words in IPA, from the Carnegie Mellon Pronouncing Dictionary 0.7b.

The dictionary is ``cmudict-0.7b.tsv.xz``, a word and its pronunciations in ARPAbet a line; its
licence (BSD-2-Clause) is beside it. Stress marks are placed, and of several pronunciations one is
chosen, as the data of VALL-E X were made: those ids are all that such a model knows.
"""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

import lzma
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("cmudict-0.7b.tsv.xz")

_IPA: Final = {
    "ey": "eɪ", "aa": "ɑ", "ae": "æ", "ah": "ə", "ao": "ɔ", "aw": "aʊ", "ay": "aɪ", "ch": "tʃ",
    "dh": "ð", "eh": "ɛ", "er": "əɹ", "hh": "h", "ih": "ɪ", "jh": "dʒ", "ng": "ŋ", "ow": "oʊ",
    "oy": "ɔɪ", "sh": "ʃ", "th": "θ", "uh": "ʊ", "uw": "u", "zh": "ʒ", "iy": "i", "y": "j",
    "r": "ɹ",
}  # fmt: skip
_VOWELS: Final = frozenset([
    "aa",
    "ae",
    "ah",
    "ao",
    "aw",
    "ay",
    "eh",
    "er",
    "ey",
    "ih",
    "iy",
    "ow",
    "oy",
    "uh",
    "uw",
])
_NASALS_AND_FRICATIVES: Final = frozenset([
    "m",
    "n",
    "ng",
    "dh",
    "f",
    "s",
    "sh",
    "th",
    "v",
    "z",
    "zh",
])
_STOPS: Final = frozenset(["b", "d", "g", "k", "p", "t"])
_CLUSTERS: Final = frozenset({"sp", "st", "sk", "fr", "fl"})
_TWO_SYLLABLES: Final = frozenset({
    ("er", "iy"), ("iy", "ow"), ("uw", "ow"), ("iy", "ah"), ("iy", "ey"), ("uw", "eh"),
    ("er", "eh"),
})  # fmt: skip
_MARKS: Final = {"1": "ˈ", "2": "ˌ"}


def pronunciation(word: str) -> str | None:
    """Return the IPA of a word in lower case; None if the dictionary lacks it."""
    found = _dictionary().get(word)
    if found is None:
        return None
    # The last in code-point order; the order of the reference's own symbols for tʃ, dʒ and ɹ.
    return max((ipa(one.split()) for one in found.split(";")), key=_order)


def ipa(phones: Sequence[str]) -> str:
    """Return the IPA of phones of ARPAbet, in lower case, whose vowels end with their stress."""
    plain = [phone.rstrip("012") for phone in phones]
    marks = [""] * len(phones)
    if _syllables(plain) > 1:
        for at, phone in enumerate(phones):
            if phone[-1] in _MARKS:
                onset = _onset(plain[:at])
                marks[onset] = _MARKS[phone[-1]] + marks[onset]
    pairs = zip(marks, plain, strict=True)
    joined = "".join(mark + (_IPA.get(one, one) if len(mark) < 2 else one) for mark, one in pairs)
    for marked, moved in (("ˈəɹ", "əˈɹ"), ("ˈie", "iˈe")):
        if not joined.startswith(marked):
            joined = joined.replace(marked, moved)
    return joined


def _onset(before: Sequence[str]) -> int:
    """Return where the mark of a vowel goes, of the phones before it and itself."""
    for at in reversed(range(len(before))):
        phone = before[at]
        after = before[at + 1] if at + 1 < len(before) else None
        ends = phone in _VOWELS or phone in _NASALS_AND_FRICATIVES or phone == "w"
        if not ends and after not in _STOPS:
            continue
        if after is not None and phone + after not in _CLUSTERS and after not in _VOWELS:
            return at + 1
        return len(before) if phone in _VOWELS else at
    return 0


def _syllables(phones: Sequence[str]) -> int:
    """Count vowels, of which most that follow another belong to its syllable."""
    count = 0
    for at, phone in enumerate(phones):
        before = phones[at - 1] if at else None
        if phone in _VOWELS and (before not in _VOWELS or (before, phone) in _TWO_SYLLABLES):
            count += 1
    return count


def _order(found: str) -> str:
    """Return what pronunciations are sorted by: those symbols that stand for two are one there."""
    return found.replace("tʃ", "ʧ").replace("dʒ", "ʤ").replace("ɹ", "r")


@cache
def _dictionary() -> dict[str, str]:
    with lzma.open(FILE, "rt", encoding="utf-8") as lines:
        return dict(line.rstrip("\n").split("\t") for line in lines)
