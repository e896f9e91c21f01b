"""Which phonemes belong to which word of a text.

espeak-ng joins small words ("of the" is one group of phonemes) and now and then divides one, so
spaces alone do not tell. Each word is pronounced by itself, and the phonemes of the sentence are
aligned with those by edit distance.
"""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from models.text.source import WrittenWord

# A dash or an ellipsis between two words needs no space: store—and.
_TOKEN: Final = re.compile(r"[^\s\[—–…]*\[\[(?P<phonemes>.*?)\]\][^\s—–…]*|(?:[^\s—–….]|\.(?!\.))+")
_MARKS: Final = frozenset(",.!?;:—…\"'()-")
_LIGHT: Final = frozenset("ˈˌː ")

_SUBSTITUTED = 1.0
_ADDED = 0.9
_LIGHTLY = 0.4
_FREELY = 0.05
_NEVER = 9.0


class WordSpan(NamedTuple):
    """A word as written, where its phonemes are in the utterance's, and what is spoken for it."""

    word: str
    begin: int
    end: int
    spoken: str


def word_spans(
    words: Sequence[WrittenWord], phonemes: str, speak: Callable[[str], str]
) -> list[WordSpan]:
    """Return the words of an utterance with their phonemes, in order.

    A word whose sound cannot be found has an empty span where it would be; one without a sound of
    its own belongs to the word before. ``speak`` converts words to phonemes.
    """
    sounding: list[WrittenWord] = []
    alone: list[str] = []
    for word in words:
        if sound := _alone(word.spoken, speak):
            sounding.append(word)
            alone.append(sound)
        elif sounding:
            before = sounding[-1]
            sounding[-1] = WrittenWord(*map(" ".join, zip(before, word, strict=True)))
    pairs = _aligned(" ".join(alone), phonemes)
    spans = []
    at = 0
    start = 0
    for word, sound in zip(sounding, alone, strict=True):
        places = [pairs[n] for n in range(at, at + len(sound)) if pairs[n] is not None]
        at += len(sound) + 1
        found = [place for place in places if place is not None and place >= start]
        begin, end = (found[0], found[-1] + 1) if found else (start, start)
        spans.append(WordSpan(word.written, begin, end, word.spoken))
        start = max(start, end)
    return _completed(spans, phonemes)


def _alone(words: str, speak: Callable[[str], str]) -> str:
    """Return the phonemes of words, each pronounced by itself, without marks."""
    sounds = []
    for token in _TOKEN.finditer(words):
        inline = token["phonemes"]
        spoken = inline if inline is not None else speak(token[0])
        sounds.append("".join(symbol for symbol in spoken if symbol not in _MARKS).strip())
    return " ".join(filter(None, sounds))


def _completed(spans: Sequence[WordSpan], phonemes: str) -> list[WordSpan]:
    """Return the spans with the phonemes beside them that none has, up to the next space."""
    done: list[WordSpan] = []
    before = 0
    for number, span in enumerate(spans):
        begin = span.begin
        end = span.end
        after = spans[number + 1].begin if number + 1 < len(spans) else len(phonemes)
        if begin < end:
            while begin > before and not _parts(phonemes[begin - 1]):
                begin -= 1
            while end < after and not _parts(phonemes[end]):
                end += 1
        done.append(span._replace(begin=begin, end=end))
        before = max(before, end)
    return done


def _parts(symbol: str) -> bool:
    """Return whether a symbol is between words."""
    return symbol == " " or symbol in _MARKS


def _aligned(source: str, target: str) -> list[int | None]:
    """Return the index in ``target`` of each symbol of ``source``, None where it has none."""
    rows = [[0.0]]
    for symbol in target:
        rows[0].append(rows[0][-1] + _cost(symbol))
    for symbol in source:
        above = rows[-1]
        lost = _cost(symbol)
        row = [above[0] + lost]
        for place, other in enumerate(target):
            swapped = above[place] + _swap(symbol, other)
            row.append(min(swapped, above[place + 1] + lost, row[-1] + _cost(other)))
        rows.append(row)
    pairs: list[int | None] = [None] * len(source)
    here = len(source)
    there = len(target)
    while here and there:
        score = rows[here][there]
        symbol = source[here - 1]
        other = target[there - 1]
        if score == rows[here - 1][there - 1] + _swap(symbol, other):
            here -= 1
            there -= 1
            pairs[here] = there
        elif score == rows[here - 1][there] + _cost(symbol):
            here -= 1
        else:
            there -= 1
    return pairs


def _cost(symbol: str) -> float:
    """Return the cost of a symbol that the other string lacks."""
    if symbol in _MARKS:
        return _FREELY
    return _LIGHTLY if symbol in _LIGHT else _ADDED


def _swap(one: str, other: str) -> float:
    """Return the cost of a symbol in place of another."""
    if one == other:
        return 0.0
    if one in _LIGHT or other in _LIGHT or other in _MARKS:
        return _NEVER
    return _SUBSTITUTED
