"""An utterance as its text grows: what the model is given of its first words, more with each.

The phonemes of a sentence's first words are read anew with each further word, which may change
those of the word or two before: "the" before a vowel, "to", the stress. What was measured:
docs/results/mid-sentence.md.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

from models.text.incremental.phrases import border_cost
from models.text.markup import Inline
from models.text.source import WrittenWord
from models.text.words import word_spans

_ENDS: Final = " ,.!?;:—…\"')"
_KEPT: Final = 4096  # readings
_READ_AGAIN: Final = 3  # of the last words, those whose phonemes are looked for anew
# Shares of the most phonemes from which a sentence is cut, as its end may be far: behind a clause,
# and before what begins a phrase.
_CLAUSE: Final = 0.6
_PHRASE: Final = 0.8
_PHRASE_COST: Final = 1.1


class TextVersion(NamedTuple):
    """What is known of an utterance with some of its words."""

    phonemes: str
    begins: tuple[int, ...]  # index in the phonemes of the first symbol of each of the words


class Readings:
    """What was read in one language: a sentence that is being written is read with each word."""

    def __init__(self) -> None:
        self._alone: dict[str, str] = {}
        self._together: dict[str, TextVersion] = {}

    def alone(self, word: str, speak: Callable[[str], str]) -> str:
        """Return the phonemes of a word by itself."""
        if word not in self._alone:
            self._make_room(self._alone)
            self._alone[word] = speak(word)
        return self._alone[word]

    def together(self, words: str, read: Callable[[], TextVersion]) -> TextVersion:
        """Return what is known of some words; ``read`` reads them for the first time."""
        if words not in self._together:
            self._make_room(self._together)
            self._together[words] = read()
        return self._together[words]

    @staticmethod
    def _make_room(found: dict[str, Any]) -> None:
        if len(found) >= _KEPT:
            found.clear()


class WordByWord:
    """Reads the first words of an utterance, more with each `add`.

    What it says of some words depends on these words alone. ``speak`` converts words to phonemes.
    """

    def __init__(
        self, speak: Callable[[str], str], inline: Inline, readings: Readings | None = None
    ) -> None:
        self._speak = speak
        self._inline = inline
        self._words: list[str] = []
        self._readings = readings or Readings()
        self.phonemes = ""  # of the words so far, as if the utterance ended with them
        self.begins: tuple[int, ...] = ()

    def add(self, word: str) -> None:
        """Take the next word, with the marks around it."""
        self._words.append(word)
        written = " ".join(map(self._inline.write, self._words))
        self.phonemes, self.begins = self._readings.together(written, self._read)

    def _read(self) -> TextVersion:
        """Read the words so far, of which all but the last were read."""
        before = self.phonemes
        phonemes = self._inline.pronounce(self._speak(" ".join(self._words))).rstrip()
        pairs = zip(before, phonemes, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        known = len(self._words) - _READ_AGAIN
        while known > 0 and self.begins[known] > same:
            known -= 1
        since = self.begins[known] if known > 0 else 0
        known = max(0, known)
        return TextVersion(
            phonemes, (*self.begins[:known], *self._word_begins(known, since, phonemes))
        )

    @property
    def version(self) -> TextVersion:
        """What the model is given while more words are to come: no last mark but a comma."""
        phonemes = self.phonemes
        if not phonemes.endswith(","):
            phonemes = phonemes.rstrip(_ENDS)
        return TextVersion(phonemes, tuple(min(at, len(phonemes)) for at in self.begins))

    def _word_begins(self, first: int, since: int, phonemes: str) -> Iterator[int]:
        """Yield where the words from one on begin, in the phonemes from a symbol on."""
        words = [
            WrittenWord(str(number), self._inline.write(word))
            for number, word in enumerate(self._words[first:])
        ]
        spans = word_spans(words, phonemes[since:], self._spoken)
        # A word without a sound of its own was joined to the one before.
        begins = {int(span.word.split()[0]): since + span.begin for span in spans}
        at = len(phonemes)
        found = []
        for number in reversed(range(len(words))):
            at = begins.get(number, at)
            found.append(at)
        yield from reversed(found)

    def _spoken(self, word: str) -> str:
        return self._readings.alone(word, self._speak)


def may_be_cut(symbols: int, most: int) -> bool:
    """Return whether an utterance of some phonemes may be cut: the next word decides."""
    return symbols >= _CLAUSE * most


def is_cut(symbols: int, most: int, before: str, after: str, *, joined: bool) -> bool | None:
    """Return whether an utterance of some phonemes is cut between two words; None: it must not be.

    True if speech pauses there. ``joined`` words were written as one.
    """
    if joined or not may_be_cut(symbols, most):
        return None
    cost, pauses = border_cost(before, after)
    if pauses:
        return True
    return False if symbols >= _PHRASE * most and cost <= _PHRASE_COST else None


def places_of_words(line: str) -> list[tuple[int, int]]:
    """Return where the words of a line begin and end; marks that stand apart belong to a word."""
    places: list[tuple[int, int]] = []
    at = 0
    for token in line.split():
        begin = line.index(token, at)
        at = begin + len(token)
        if not places or any(map(_sounds, line[places[-1][0] : places[-1][1]])):
            if places and not any(map(_sounds, token)):
                places[-1] = places[-1][0], at
            else:
                places.append((begin, at))
        else:  # marks before the first word
            places[-1] = places[-1][0], at
    return places


def _sounds(symbol: str) -> bool:
    return symbol.isalnum() or "\ue000" <= symbol <= "\uf8ff"


def versions_of(read: Sequence[TextVersion], lookahead: int) -> tuple[TextVersion, ...]:
    """Return the versions of an utterance, given what is known with 1, 2, ... and all words.

    The first has a word and ``lookahead`` more.
    """
    return tuple(read[min(lookahead, len(read) - 1) :])
