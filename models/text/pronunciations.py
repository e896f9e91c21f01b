"""Pronunciation dictionaries: what is spoken for words as they are written.

An entry is a word, or several, and the text to speak in its place, in which `[[phonemes]]` may be:
`{"SQL": "sequel", "Nguyen": "[[wɪn]]"}`. An entry in lower case is for every case, others are for
the word as it is written. Only whole words are replaced, the longest entry first, and what was put
in is not searched again.
"""

# ruff: noqa: RUF001, RUF002 - IPA is full of letters that look like Latin ones

import re
from collections.abc import Collection, Mapping
from typing import Final

from models.text.errors import TextError
from models.text.markup import Inline, parse_markup
from models.text.source import Rewritten

MOST_WORD_CHARS: Final = 100
MOST_SPOKEN_CHARS: Final = 200

_SIBILANTS: Final = "szʃʒ"
_VOICELESS: Final = "ptkfθ"

Entries = Mapping[str, str]


class PronunciationError(TextError):
    """An entry of a dictionary cannot be spoken; the message names it."""


def check_entries(entries: Entries, symbols: Collection[str], max_phonemes: int) -> None:
    """Raise PronunciationError unless all entries can be spoken."""
    for word, spoken in entries.items():
        if not (word.strip() and len(word) <= MOST_WORD_CHARS and re.search(r"\w", word)):
            raise PronunciationError(
                f"{word[:MOST_WORD_CHARS]!r} is no word of 1 to {MOST_WORD_CHARS} characters"
            )
        if not (spoken.strip() and len(spoken) <= MOST_SPOKEN_CHARS):
            raise PronunciationError(f"{word!r}: write 1 to {MOST_SPOKEN_CHARS} characters")
        try:
            stretches, _ = parse_markup(spoken, symbols, max_phonemes)
        except TextError as error:
            raise PronunciationError(f"{word!r}: {error}") from error
        if len(stretches) > 1:
            raise PronunciationError(f"{word!r}: only [[phonemes]] can be in it, no other markup")


def pronounced(text: Rewritten, entries: Entries, inline: Inline) -> Rewritten:
    """Return a text with what checked entries say for its words; ``inline`` gets their phonemes."""
    found = _plain(text.text).lower()
    exact = {_plain(word): spoken for word, spoken in entries.items()}
    exact = {word: spoken for word, spoken in exact.items() if word.lower() in found}
    if not exact:
        return text

    def spoken(match: re.Match[str]) -> str:
        written = _plain(match[0])
        for word, ending in ((written, ""), (written.removesuffix("'s"), "'s")):
            for entry in (exact.get(word), exact.get(word.lower())):
                if entry is not None:
                    return inline.hide(_with_ending(entry, ending))
        raise AssertionError(written)

    return text.sub(_pattern(exact), spoken)


def _pattern(words: Collection[str]) -> re.Pattern[str]:
    """Return a pattern of any of the words, longest first."""
    parts = [_of_word(word) for word in sorted(words, key=lambda word: (-len(word), word))]
    return re.compile(rf"(?:{'|'.join(parts)})(?:(?<=\w)['\u2019]s\b)?")


def _of_word(word: str) -> str:
    """Return the pattern of an entry, not within another word."""
    pattern = r"\s+".join(re.escape(part).replace("'", "['\u2019]") for part in word.split())
    before = r"(?<!\w)" if re.match(r"\w", word) else ""
    after = r"(?!\w)" if re.search(r"\w\Z", word) else ""
    return f"{before}(?i:{pattern}){after}" if word == word.lower() else before + pattern + after


def _with_ending(entry: str, ending: str) -> str:
    """Return an entry with the ending of a possessive, in phonemes if it ends in those."""
    phonemes = entry.rstrip().removesuffix("]]")
    if not ending or phonemes == entry.rstrip():
        return entry + ending
    if phonemes[-1] in _SIBILANTS:
        return f"{phonemes}ɪz]]"
    return f"{phonemes}{'s' if phonemes[-1] in _VOICELESS else 'z'}]]"


def _plain(word: str) -> str:
    """Return a word with plain apostrophes and single spaces."""
    return " ".join(word.replace("\u2019", "'").split())
