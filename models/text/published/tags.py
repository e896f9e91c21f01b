"""What a request's `language` means: a BCP 47 tag, a locale of POSIX, an English name, or `auto`.

The names are those of the languages that models speak (`models.text.published.languages`).
"""

import re
from collections.abc import Collection
from typing import Final

_AUTO: Final = frozenset({"auto", "automatic", "auto-detect", "autodetect", "detect", "und"})
"""The voice's own language; `und` is BCP 47's for a language that is not determined."""

_NAMES: Final = {
    "en": ("eng", "english"),
    "ja": ("jpn", "japanese", "日本語"),
    "de": ("deu", "ger", "german", "deutsch"),
    "fr": ("fra", "fre", "french", "français", "francais"),
    "zh": ("zho", "chi", "cmn", "chinese", "mandarin", "中文", "汉语", "漢語", "普通话", "普通話"),
    "ko": ("kor", "korean", "한국어"),
}
"""ISO 639-2 and 639-3, the English name, and the language's own."""

_CODES: Final = {name: code for code, names in _NAMES.items() for name in names}
_SEPARATOR: Final = re.compile(r"[^\w-]+|[_-]")
_REMARK: Final = re.compile(r"[(\[].*|@.*|\.[\w-]*\Z", re.DOTALL)  # English (US), de_DE.UTF-8@euro
# Of other languages, whose names contain these: Old English, Low German, French Sign Language.
_OTHERS: Final = frozenset({
    "old",
    "middle",
    "early",
    "ancient",
    "classical",
    "low",
    "sign",
    "creole",
    "pidgin",
    "based",
})
_GAP: Final = r"[\W_]"
_SHORTEST_NAME: Final = 4  # shorter ones are codes, and stand first


KNOWN: Final = tuple(_NAMES)
"""The codes of those languages."""


def name_of(code: str) -> str:
    """Return the English name of a language, or its code if it is not known."""
    names = (name for name in _NAMES.get(code, ()) if len(name) >= _SHORTEST_NAME)
    return next(names, code).title()


def language_pattern(spoken: Collection[str]) -> str:
    """Return the pattern of all that means one of some languages; it has some that mean none.

    Those are names of other languages that contain one's, as Old English.
    """
    words = [name for code in spoken for name in (code, *_NAMES.get(code, ()))]
    long = [name for name in words if len(name) >= _SHORTEST_NAME]
    first = rf"({_in_any_case(words)})({_GAP}[\s\S]*)?"
    last = rf"[\s\S]*{_GAP}({_in_any_case(long)}){_GAP}*([(\[@.][\s\S]*)?"
    auto = rf"({_in_any_case(sorted({name.split('-')[0] for name in _AUTO}))})({_GAP}[\s\S]*)?"
    return rf"^{_GAP}*({first}|{auto})?$" + (rf"|^{last}$" if long else "")


def _in_any_case(words: Collection[str]) -> str:
    """Return a pattern of words, which JSON Schema has no flag for."""
    return "|".join(
        "".join(f"[{one.upper()}{one.lower()}]" if one.isalpha() else one for one in word)
        for word in words
    )


def find_language(asked: str | None, default: str, spoken: Collection[str]) -> str | None:
    """Return which of the languages that a model speaks is meant; None if it speaks no such one.

    ``default`` is meant where none is asked for, or `auto`. A tag is looked up as RFC 4647 has it:
    without its last subtags, until one is spoken.
    """
    asked = (asked or "").strip().lower()
    subtags = [one for one in _SEPARATOR.split(_REMARK.sub("", asked)) if one]
    if asked in {"", *_AUTO} or "-".join(subtags) in _AUTO:
        asked = default.lower()
        subtags = [one for one in _SEPARATOR.split(asked) if one]
    if not _OTHERS.isdisjoint(subtags):
        return None
    known = {one.lower().replace("_", "-"): one for one in spoken}
    for count in range(len(subtags), 0, -1):
        tag = "-".join(subtags[:count])
        found = known.get(_CODES.get(tag, tag))
        if found is not None:
            return found
    # An English name may have words before it: American English.
    last = subtags[-1] if subtags else ""
    return known.get(_CODES.get(last, "")) if len(last) >= _SHORTEST_NAME else None
