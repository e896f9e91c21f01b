"""Splitting of normalised text into utterances, one a sentence.

`models.text.incremental` tells where a sentence ends. One with too many phonemes is cut where
`models.text.incremental.phrases` finds it best; a part that has still too many is cut again.
"""

# ruff: noqa: RUF001 - dashes of every kind

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from models.text.characters import INLINE
from models.text.growth import (
    Readings,
    TextVersion,
    WordByWord,
    is_cut,
    may_be_cut,
    places_of_words,
    versions_of,
)
from models.text.incremental.enclosure import PARAGRAPH
from models.text.incremental.phrases import Cut, cuts
from models.text.incremental.text import pieces
from models.text.markup import Inline
from models.text.phonemes import phonemize
from models.text.source import Rewritten, WrittenWord

_SPACES: Final = re.compile(r"\s+")
_INLINE: Final = re.compile(f"[{INLINE}]")
_SYMBOLS_A_LETTER: Final = 0.95
"""Phoneme symbols for a letter of English, about, stress marks among them."""

_ESTIMATES: Final = 3
_WINDOW: Final = 3  # letters that are cut together, as a multiple of the phonemes of a part

_NOT_FIRST: Final = " ,;:.!?…—–-"

Phonemize = Callable[[str], str]


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
    # with a look-ahead: what the model is given of it, of more words each, at last of all
    versions: tuple[TextVersion, ...] = field(default=(), compare=False)
    whole: bool = True  # whether its end is known; else its versions are those of its beginning


@dataclass(frozen=True)
class Growing:
    """How a text is read that is spoken before all of it is known."""

    lookahead: int  # words behind the one that is spoken
    is_open: bool = False  # whether more of the last sentence is to come
    readings: Readings | None = None  # what was read before


def split(
    text: Rewritten,
    inline: Inline | None = None,
    *,
    speak: Phonemize = phonemize,
    max_phonemes: int = 250,
    joint: str = "",
    growing: Growing | None = None,
) -> Iterator[Utterance]:
    """Yield normalised words and punctuation as utterances of at most `max_phonemes` symbols.

    Parts without letters are dropped. ``joint`` follows the phonemes where a sentence is cut
    between two words. One that is ``growing`` is cut where the words up to there and the next one
    tell, and utterances have `versions`.
    """
    inline = inline or Inline({})
    sentences = [*_sentences(text)]
    for number, sentence in enumerate(sentences):
        parts = _fitting(sentence, inline, speak, max_phonemes, joint)
        if growing is not None:
            is_open = growing.is_open and number + 1 == len(sentences)
            how = replace(growing, is_open=is_open)
            parts = _growing(sentence, inline, speak, max_phonemes, joint, how)
        for utterance in parts:
            if any(symbol.isalpha() for symbol in utterance.phonemes):
                yield utterance


def _sentences(text: Rewritten) -> Iterator[Rewritten]:
    """Yield the sentences of each paragraph, each on one line."""
    start = 0
    for end, after in [*(match.span() for match in PARAGRAPH.finditer(text.text)), (None, 0)]:
        line = text[start:end].sub(_SPACES, " ").strip()
        start = after
        at = 0
        plain = _INLINE.sub("X", line.text)
        for piece in pieces(plain, layout=False):
            at = plain.index(piece, at)
            first = at + len(piece) - len(piece.lstrip(_NOT_FIRST))
            at += len(piece)
            yield line[first:at]


def _fitting(
    text: Rewritten, inline: Inline, speak: Phonemize, most: int, joint: str
) -> Iterator[Utterance]:
    """Yield a sentence, or its parts if it has over `most` phonemes."""

    def spoken(part: Rewritten) -> str | None:
        # English has at least one phoneme symbol for two letters, so a text of over twice as many
        # letters is cut without phonemising it.
        if len(part.text) > 2 * most:
            return None
        return inline.pronounce(speak(part.text))

    phonemes = spoken(text)
    # The name of a single letter may exceed a small limit and cannot be cut.
    if phonemes is not None and (len(phonemes) <= most or len(text.text) == 1):
        yield _utterance(text, inline, phonemes, most)
        return
    # A long text is cut window by window, so that no step of the work is long. The last part of a
    # window goes on in the next.
    window = text[: _window(text.text, most)]
    found = _best_cuts(window, phonemes, spoken, most)
    for part, cut in zip(_between(window, found), found, strict=False):
        *first, last = _fitting(part, inline, speak, most, joint)
        yield from first
        phonemes = last.phonemes
        if not cut.pauses and len(phonemes) + len(joint) <= most:
            phonemes += joint
        yield replace(last, phonemes=phonemes, pause_after_s=None if cut.pauses else 0.0)
    yield from _fitting(text[found[-1].start :].strip(), inline, speak, most, joint)


def _utterance(text: Rewritten, inline: Inline, phonemes: str, most: int) -> Utterance:
    words = tuple(
        WrittenWord(inline.write(one.written), inline.write(one.spoken)) for one in text.words()
    )
    return Utterance(inline.write(text.text), phonemes[:most], words=words)


@dataclass(frozen=True)
class _PartRead:
    """A part of a sentence as it was read word by word: what was known after each word."""

    versions: Sequence[TextVersion]
    phonemes: str = ""  # of all of its words, as the end of an utterance
    pauses: bool = False  # whether its end is one of a phrase or of the sentence
    is_open: bool = False  # whether its end is not known


def _growing(
    text: Rewritten, inline: Inline, speak: Phonemize, most: int, joint: str, how: Growing
) -> Iterator[Utterance]:
    """Yield a sentence, or its parts, each as it is read word by word; the last may be open."""
    places = places_of_words(text.text)
    while places:
        reading = WordByWord(speak, inline, how.readings)
        read = _read_part(text, places, reading, most, len(joint), is_open=how.is_open)
        if read.is_open:
            part = text[places[0][0] :].strip()
            if len(read.versions) > how.lookahead:
                versions = versions_of(read.versions, how.lookahead)
                known = _utterance(part, inline, versions[-1].phonemes, most)
                yield replace(known, versions=versions, whole=False)
            return
        count = max(1, len(read.versions))
        part = text[places[0][0] : places[count - 1][1]].strip()
        places = places[count:]
        if not read.versions:  # a word that is too long by itself
            yield from _fitting(part, inline, speak, most, joint)
            continue
        phonemes = read.phonemes if read.pauses else read.phonemes + joint
        *earlier, whole = read.versions
        known_words = [*earlier, whole._replace(phonemes=phonemes)]
        yield replace(
            _utterance(part, inline, phonemes, most),
            pause_after_s=None if read.pauses else 0.0,
            versions=versions_of(known_words, how.lookahead),
        )


def _read_part(
    text: Rewritten,
    places: Sequence[tuple[int, int]],
    reading: WordByWord,
    most: int,
    reserve: int,
    *,
    is_open: bool,
) -> _PartRead:
    """Read words of a sentence until it is cut or ends; none where the first word is too long."""
    # Where it is cut, ``reserve`` symbols follow.
    versions: list[TextVersion] = []
    phonemes = ""
    for number, (begin, end) in enumerate(places):
        word = text.text[begin:end]
        reading.add(word)
        count = len(reading.phonemes)
        is_last = number + 1 == len(places)
        if count > most - reserve and (versions or not is_last):
            return _PartRead(versions, phonemes)
        if is_last and is_open:
            if not may_be_cut(count, most):
                versions.append(reading.version)
            return _PartRead(versions, is_open=True)
        versions.append(reading.version)
        phonemes = reading.phonemes
        if is_last:
            return _PartRead(versions, phonemes, pauses=True)
        since, until = places[number + 1]
        joined = text.joins(since - 1, since)
        pauses = is_cut(count, most, word, text.text[since:until], joined=joined)
        if pauses is not None:
            return _PartRead(versions, phonemes, pauses)
    return _PartRead(versions, phonemes)


def _window(line: str, most: int) -> int:
    """Return the end of the first words of a line that are cut together."""
    if len(line) <= _WINDOW * most:
        return len(line)
    space = line.rfind(" ", most, _WINDOW * most)
    return space if space > 0 else _WINDOW * most


def _best_cuts(
    text: Rewritten, phonemes: str | None, spoken: Callable[[Rewritten], str | None], most: int
) -> list[Cut]:
    """Return where a sentence is cut, once at least."""
    # How long a part is spoken is estimated from its letters, then from those of each part. The
    # last cuts that fit are taken.
    line = text.text
    joined = {at for at in range(1, len(line) - 1) if text.joins(at, at + 1)}
    ratio = len(phonemes) / len(line) if phonemes else _SYMBOLS_A_LETTER
    step = 1.05 * max(ratio / most, 1 / len(line))
    lengths = [at * step for at in range(len(line) + 1)]
    middle = len(line) // 2
    best: list[Cut] = []
    for _ in range(_ESTIMATES):
        found = cuts(line, joined, lengths) or [Cut(middle, middle, pauses=False)]
        parts = _between(text, found)
        counts = [_count(spoken(part), part) for part in parts]
        if found == best:
            break
        if max(counts) <= most or not best:
            best = found
        lengths = []
        total = 0.0
        starts = [0, *(cut.start for cut in found), len(line)]
        for part, count, (start, until) in zip(parts, counts, pairwise(starts), strict=True):
            step = count / most / max(1, len(part.text))
            lengths += [total + step * at for at in range(until - start)]
            total += step * (until - start)
        lengths.append(total)
    return best


def _between(text: Rewritten, found: Sequence[Cut]) -> list[Rewritten]:
    """Return the parts of a text between cuts."""
    starts = [0, *(cut.start for cut in found)]
    ends = [*(cut.end for cut in found), len(text.text)]
    return [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def _count(phonemes: str | None, part: Rewritten) -> float:
    """Return how many phonemes a part has, about, if they are too many to count."""
    return len(phonemes) if phonemes is not None else _SYMBOLS_A_LETTER * len(part.text)
