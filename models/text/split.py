"""Splitting of normalised text into utterances, one a sentence.

`models.text.incremental` tells where a sentence ends. One with too many phonemes is halved at the
strongest border near its middle, recursively until it fits; never within a number or a name.
"""

# ruff: noqa: RUF001 - dashes of every kind

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from models.text.characters import INLINE
from models.text.incremental.enclosure import PARAGRAPH
from models.text.incremental.text import pieces
from models.text.markup import Inline
from models.text.normalise.rule import any_of
from models.text.normalise.vocabulary import NUMBER_WORDS
from models.text.phonemes import phonemize
from models.text.source import Rewritten, WrittenWord

_SPACES: Final = re.compile(r"\s+")
_INLINE: Final = re.compile(f"[{INLINE}]")
_JOINING: Final = (
    r"(?:and|or|but|nor|yet|so|because|although|though|while|when|where|which|who|that|if|unless"
    r"|until|after|before|since|as)\b"
)
# Strongest first: the end of a sentence inside a quotation, clauses, conjunctions, words.
_BORDERS: Final = (
    re.compile(r"(?<=[.!?…])[\"')]*\s+"),
    re.compile(r"(?<=[;:,)])[\"']?\s+|(?<!\s)\s++(?=[(—–])|(?<=[—–])\s*"),
    re.compile(rf"\s+(?={_JOINING})"),
    re.compile(r"\s+"),
)
_CLAUSES: Final = _BORDERS[:2]
_TRIED: Final = (
    *((border, reach) for reach in (0.5, 0.7) for border in _BORDERS[:3]),
    (_BORDERS[3], 1.0),
)
"""Borders in the order in which they are tried, and how far from the middle each may be, as a share
of half the text."""

# Within a number, a name, or a number and what it counts there is no border.
_NUMBER: Final = rf"(?:{any_of(NUMBER_WORDS)})(?:-\w+)?"
_TOGETHER: Final = re.compile(
    rf"\b{_NUMBER}(?P<number>\s+and\s+(?={_NUMBER}\b)|\s+(?!{_JOINING}))"
    r"|\b[A-Z][\w'.]*(?P<name>\s+(?:of\s+(?:the\s+)?|de\s+|van\s+|von\s+)?)(?=[A-Z])"
)

_NOT_FIRST: Final = " ,;:.!?…—–-"

Speak = Callable[[str], str]


@dataclass(frozen=True)
class Utterance:
    """A part of a text that is synthesised at once."""

    text: str  # its normalised words; inline phonemes in brackets
    phonemes: str  # input of the model; empty only for a pause at the beginning of a text
    # silence after it in seconds: that of the markup, 0 where a sentence was cut between two words,
    # None for the default pause of the request
    pause_after_s: float | None = None
    # who speaks it, as the markup names them; None: the voice of the request
    voice: str | None = None
    rate: float = 1.0  # its tempo: 1 is the model's own, 2 is twice as fast
    # as they were written, in order
    words: tuple[WrittenWord, ...] = field(default=(), compare=False)


def split(
    text: Rewritten,
    inline: Inline | None = None,
    *,
    speak: Speak = phonemize,
    max_phonemes: int = 250,
    joint: str = "",
) -> Iterator[Utterance]:
    """Yield normalised words and punctuation as utterances of at most `max_phonemes` symbols.

    Parts without letters are dropped. ``joint`` follows the phonemes where a sentence is cut
    between two words.
    """
    inline = inline or Inline({})
    for sentence in _sentences(text):
        for utterance in _fitting(sentence, inline, speak, max_phonemes, joint):
            if any(symbol.isalpha() for symbol in utterance.phonemes):
                yield utterance


def _sentences(text: Rewritten) -> Iterator[Rewritten]:
    """Yield the sentences of each paragraph, each on one line."""
    start = 0
    for end, after in [*(match.span() for match in PARAGRAPH.finditer(text.text)), (None, 0)]:
        line = text[start:end].sub(_SPACES, " ").strip()
        start, at = after, 0
        plain = _INLINE.sub("X", line.text)
        for piece in pieces(plain, ssml=False):
            at = plain.index(piece, at)
            first = at + len(piece) - len(piece.lstrip(_NOT_FIRST))
            at += len(piece)
            yield line[first:at]


def _fitting(
    text: Rewritten, inline: Inline, speak: Speak, most: int, joint: str
) -> Iterator[Utterance]:
    """Yield a sentence, or its parts if it has over `most` phonemes."""
    # English has at least one phoneme symbol for two letters, so a text of over twice as many
    # letters is halved without phonemising it.
    if len(text.text) <= 2 * most:
        phonemes = inline.pronounce(speak(text.text))
        # The name of a single letter may exceed a small limit and cannot be halved.
        if len(phonemes) <= most or len(text.text) == 1:
            words = tuple(
                WrittenWord(inline.write(one.written), inline.write(one.spoken))
                for one in text.words()
            )
            yield Utterance(inline.write(text.text), phonemes[:most], words=words)
            return
    end, start, pause_after_s = _halving(text)
    last: Utterance | None = None
    for one in _fitting(text[:end].strip(), inline, speak, most, joint):
        if last is not None:
            yield last
        last = one
    assert last is not None
    phonemes = last.phonemes
    if pause_after_s == 0.0 and len(phonemes) + len(joint) <= most:
        phonemes += joint
    yield replace(last, phonemes=phonemes, pause_after_s=pause_after_s)
    yield from _fitting(text[start:].strip(), inline, speak, most, joint)


def _halving(text: Rewritten) -> tuple[int, int, float | None]:
    """Return the end of the first half, the start of the second, and the pause between."""
    line, middle = text.text, len(text.text) / 2
    inner = {at for one in _TOGETHER.finditer(line) for at in range(*one.span(one.lastgroup or 0))}
    joined = {at for at in range(1, len(line) - 1) if text.joins(at, at + 1)}
    for kept in (inner | joined, joined, set[int]()):
        for border, reach in _TRIED:
            cuts = [
                match.span()
                for match in border.finditer(line)
                if match.start() > 0
                and match.end() < len(line)
                and abs(match.start() - middle) <= reach * middle
                and match.start() not in kept
            ]
            if cuts:
                start, end = min(cuts, key=lambda cut: abs(cut[0] - middle))
                # Closing quotes stay with what they close.
                start += len(line[start:end].rstrip())
                return start, end, None if border in _CLAUSES else 0.0
    return len(line) // 2, len(line) // 2, 0.0
