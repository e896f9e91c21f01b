"""A text that is rewritten step by step, and what of its source each character stands for."""

# ruff: noqa: RUF001 - dashes and marks of several scripts

import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Final, NamedTuple

_BREAKS: Final = "—–…，。、！？：；"
# A dash or an ellipsis ends a word, and what follows it needs no space: store—and.
_WRITTEN: Final = re.compile(
    rf"(?:[^\s.{_BREAKS}]|\.(?!\.))+(?:[{_BREAKS}]|\.\.+)*|(?:[{_BREAKS}]|\.\.+)+"
)
_SPOKEN: Final = re.compile(rf"(?:[^\s.{_BREAKS}]|\.(?!\.))+[{_BREAKS}.]*")
_DASHES: Final = frozenset("-—–")
_EMPHASIS: Final = frozenset("*_`~#|")
_LONG_CHARS: Final = 200  # a longer word is spoken in several utterances, each with its part
_NEAR_CHARS: Final = 64  # how far on in a long word the next spoken one is looked for

Span = tuple[int, int]


class TooMuchWrittenError(Exception):
    """A text that is rewritten became longer than it may."""


class Source:
    """A text as it was written; of many parts of it, the words are found once."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def words(self) -> tuple[list[int], list[int]]:
        """Where the written words begin, and where they end."""
        found = [match.span() for match in _WRITTEN.finditer(self.text)]
        return [begin for begin, _ in found], [end for _, end in found]


class WrittenWord(NamedTuple):
    """A word as it was written, with its punctuation, and the words that are spoken for it."""

    written: str
    spoken: str


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A text and its source."""

    text: str  # as rewritten so far
    source: Source  # as written
    # for each character of `text` the part of `source` that it stands for, from one index to before
    # another
    spans: Sequence[Span]
    # indices of `source` that are layout, such as the address of a link
    hidden: frozenset[int] = frozenset()
    # characters that it may get: each rule costs what the text is long
    most_chars: int = sys.maxsize

    @classmethod
    def of(cls, text: str, most_chars: int = sys.maxsize) -> "Rewritten":
        """Return a text as it was written, which may get so many characters."""
        spans = [(at, at + 1) for at in range(len(text))]
        return cls(text, Source(text), spans, most_chars=most_chars)

    def __getitem__(self, part: slice) -> "Rewritten":
        """Return a part of the text; the source stays whole."""
        return replace(self, text=self.text[part], spans=self.spans[part])

    def sub(
        self, pattern: re.Pattern[str], new: str | Callable[[re.Match[str]], str]
    ) -> "Rewritten":
        """Replace every match, as `re.sub` does.

        Raises TooMuchWrittenError once the text would have over `most_chars`.
        """
        texts: list[str] = []
        spans: list[Span] = []
        at = 0
        if len(self.text) > self.most_chars:
            raise TooMuchWrittenError
        for match in pattern.finditer(self.text):
            begin, end = match.span()
            written = match.expand(new) if isinstance(new, str) else new(match)
            texts += self.text[at:begin], written
            spans += self.spans[at:begin]
            spans += self._replaced(begin, end, written)
            at = end
            if len(spans) > self.most_chars:
                raise TooMuchWrittenError
        if not texts:
            return self
        texts.append(self.text[at:])
        return replace(self, text="".join(texts), spans=[*spans, *self.spans[at:]])

    def strip(self) -> "Rewritten":
        """Return the text without white space around it."""
        begin = len(self.text) - len(self.text.lstrip())
        return self[begin : max(begin, len(self.text.rstrip()))]

    def joins(self, begin: int, end: int) -> bool:
        """Return whether what is before one index and what is at another were written as one."""
        return self.spans[end][0] < self.spans[begin - 1][1]

    def without_layout(self) -> "Rewritten":
        """Return the same; what of the source the text has lost is layout."""
        kept = {at for begin, end in _merged(self.spans) for at in range(begin, end)}
        return replace(self, hidden=frozenset(range(len(self.source.text))) - kept)

    def words(self) -> list[WrittenWord]:
        """Return the written words of the text, each with what is spoken for it.

        A number that is spoken in several words is one, and so are words that are spoken as one.
        Signs between two words belong to the one before; dashes that stand apart to none.
        """
        begins, ends = self.source.words
        spoken = self.spoken()
        groups: list[list[int]] = []  # begin and end in the text, first and last written word
        for token in _SPOKEN.finditer(self.text):
            begin, end = self._union(*token.span())
            first = min(bisect_right(ends, begin), len(begins) - 1)
            last = max(first, bisect_left(begins, end) - 1)
            silent = not any(one.isalnum() or "\ue000" <= one <= "\uf8ff" for one in token[0])
            if groups and (first <= groups[-1][3] or silent):
                groups[-1][1] = token.end()
                groups[-1][3] = max(last, groups[-1][3])
            else:
                groups.append([token.start(), token.end(), first, last])
        words = []
        least, most = self._union(0, len(self.text))
        for number, (begin, end, first, last) in enumerate(groups):
            upto = groups[number + 1][2] - 1 if number + 1 < len(groups) else last
            # Of a written word that is spoken in two sentences, each has its part.
            since = max(begins[first], least) if not number else begins[first]
            last = max(last, upto)
            while last > first and not {*self.source.text[begins[last] : ends[last]]} - _DASHES:
                last -= 1
            until = ends[last]
            until = min(until, most) if number + 1 == len(groups) else until
            shown = self._shown(since, until, spoken)
            words.append(WrittenWord(shown or self.text[begin:end], self.text[begin:end]))
        return words

    def spoken(self) -> list[Span]:
        """Return the parts of the source that more than white space stands for, in order."""
        pairs = zip(self.text, self.spans, strict=True)
        return _merged(span for one, span in pairs if not one.isspace())

    def _shown(self, begin: int, end: int, spoken: Sequence[Span]) -> str:
        """Return a part of the source without its layout."""
        source = self.source.text
        kept: list[str] = []
        number = max(0, bisect_right(spoken, (begin, len(source))) - 1)
        for at in range(begin, end):
            while number < len(spoken) and spoken[number][1] <= at:
                number += 1
            said = number < len(spoken) and spoken[number][0] <= at
            if at not in self.hidden and (said or source[at] not in _EMPHASIS):
                kept.append(source[at])
        return " ".join("".join(kept).split())

    def _union(self, begin: int, end: int) -> Span:
        """Return the part of the source that a part of the text stands for."""
        spans = self.spans[begin:end]
        if not spans:
            at = self.spans[begin - 1][1] if begin else 0
            return at, at
        return min(one for one, _ in spans), max(one for _, one in spans)

    def _replaced(self, begin: int, end: int, new: str) -> list[Span]:
        """Return the spans of what replaces a part of the text; words that stay keep theirs."""
        old = self.text[begin:end]
        spans = list(self.spans[begin:end])
        kept = new.strip()
        if kept and (at := old.find(kept)) >= 0:
            before = new.index(kept)
            inner = spans[at : at + len(kept)]
            after = len(new) - before - len(kept)
            return [inner[0]] * before + inner + [inner[-1]] * after
        head = _same_words(old, new)
        tail = _same_words(old[head:][::-1], new[head:][::-1])
        middle = self._union(begin + head, end - tail)
        changed = new[head : len(new) - tail]
        inner = [middle] * len(changed)
        if len(old) - head - tail > _LONG_CHARS:
            inner = _parts(old[head : len(old) - tail], spans[head : len(old) - tail], changed)
        return spans[:head] + inner + spans[len(old) - tail :]


def _same_words(one: str, other: str) -> int:
    """Return up to where two texts begin with the same words, the space after them included."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return same - len(re.split(r"\s", one[:same])[-1])


def _parts(old: str, spans: Sequence[Span], new: str) -> list[Span]:
    """Return the spans of what replaces a long word: each of its words stands for its own part."""
    # Words that are in the old text as they are, close behind each other, are found there; what is
    # between two of them, such as the digits of a number, is divided evenly.
    words = [match.span() for match in re.finditer(r"\S+\s*", new)]
    borders = [0] * len(words)
    since = 0  # the first word that has no place yet
    at = 0
    for number, (begin, end) in enumerate([*words, (len(new), len(new))]):
        word = new[begin:end].strip()
        place = old.find(word, at, at + len(word) + _NEAR_CHARS) if word else len(old)
        if place < 0 or (place - at < number - since and word):
            continue
        for one in range(since, number):
            borders[one] = at + (place - at) * (one - since) // (number - since)
        if word:
            borders[number] = place
            since = number + 1
            at = place + len(word)
    found: list[Span] = [spans[0]] * words[0][0] if words else [spans[0]] * len(new)
    for number, (begin, end) in enumerate(words):
        first = borders[number]
        last = borders[number + 1] if number + 1 < len(words) else len(old)
        last = max(last, first + 1)
        first = min(first, len(old) - 1)
        found += [(spans[first][0], spans[min(last, len(old)) - 1][1])] * (end - begin)
    return found


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return parts of a text in order, without overlaps."""
    merged: list[Span] = []
    before: Span | None = None
    for span in sorted(set(spans)):
        if before is not None and span[0] <= before[1]:
            before = before[0], max(before[1], span[1])
            merged[-1] = before
        else:
            before = span
            merged.append(span)
    return merged
