"""The phoneme tokenizer, made from a model's vocabulary alone.

Byte-pair encoding over the code points of a phoneme string, including spaces. Public VALL-E
checkpoints store tokens and ids but no merges; these follow from the vocabulary, because every
merged token consists of exactly two tokens with lower ids. The built-in model has none.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from models.config import BOS_ID, EOS_ID, UNKNOWN_ID

_SPECIALS: Final = {"<unk>": UNKNOWN_ID, "<bos>": BOS_ID, "</eos>": EOS_ID, "<mask>": 3}


def joined(texts: Sequence[Sequence[int]]) -> list[int]:
    """Return the ids of several texts as those of one, with its marks if they have any."""
    marked = any(text[:1] == [BOS_ID] for text in map(list, texts))
    ids = [one for text in texts for one in (text[1:-1] if marked else text)]
    return [BOS_ID, *ids, EOS_ID] if marked else ids


class Tokenizer:
    """Phoneme strings to ids; ``symbols`` are the single code points with an id.

    Of a text they stand between BOS and EOS, but if not ``marked``. The ``longest`` name that fits
    is read, instead of merges, where names come from a table of symbols.

    Several tokens may share an id ("a" and "ä"); merges are defined on ids. Raises ValueError if an
    id is negative, special tokens have other ids than 0 to 3, or a token is not a merge of two
    tokens with lower ids.
    """

    def __init__(
        self, vocabulary: Mapping[str, int], *, marked: bool = True, longest: bool = False
    ) -> None:
        self._marks = ([BOS_ID], [EOS_ID]) if marked else ([], [])
        for name, number in _SPECIALS.items():
            if vocabulary.get(name, number) != number:
                raise ValueError(f"vocabulary: {name} has id {vocabulary[name]}, expected {number}")
        if any(number < 0 for number in vocabulary.values()):
            raise ValueError("vocabulary: negative ids")
        self._ids = {name: number for name, number in vocabulary.items() if len(name) == 1}
        self._merges: dict[tuple[int, int], int] = {}
        self._specials = [name for name in _SPECIALS if name in vocabulary]
        self._lengths = {_SPECIALS[name]: len(name) for name in self._specials}
        self._lengths[UNKNOWN_ID] = 1
        self.symbols = frozenset(self._ids)
        self._names: re.Pattern[str] | None = None
        if longest:
            names = sorted(vocabulary, key=len, reverse=True)
            self._names = re.compile("|".join(map(re.escape, names)) + "|.")
            self._ids = {**vocabulary}
            self._lengths |= {number: len(name) for name, number in vocabulary.items()}
            return
        merged = [
            (number, name)
            for name, number in vocabulary.items()
            if len(name) > 1 and name not in _SPECIALS
        ]
        for number, name in sorted(merged):
            pieces = self._merge([self._ids.get(symbol, UNKNOWN_ID) for symbol in name])
            if pieces == [number]:  # shares its id with a token that was merged already
                continue
            if len(pieces) != 2 or UNKNOWN_ID in pieces:
                raise ValueError(
                    f"vocabulary: {name!r} (id {number}) is no merge of two names with lower ids"
                )
            self._merges[pieces[0], pieces[1]] = number
            self._lengths[number] = sum(self._lengths.get(piece, 1) for piece in pieces)

    def encode(self, phonemes: str) -> list[int]:
        """Return BOS, the ids of the string, EOS; names of special tokens are recognised."""
        return self._between(self._pieces(phonemes), *self._marks)

    def lengths(self, phonemes: str) -> list[int]:
        """Return how many symbols each id of `encode` stands for; BOS and EOS stand for none."""
        lengths = []
        left = len(phonemes)
        for number in self._pieces(phonemes):
            lengths.append(min(self._lengths.get(number, 1), left))
            left -= lengths[-1]
        return self._between(lengths, *([0] * len(mark) for mark in self._marks))

    @staticmethod
    def _between(ids: list[int], first: list[int], last: list[int]) -> list[int]:
        return [*first, *ids, *last]

    def _pieces(self, phonemes: str) -> list[int]:
        if self._names is not None:
            return [self._ids.get(one, UNKNOWN_ID) for one in self._names.findall(phonemes)]
        for special in self._specials:
            before, found, after = phonemes.partition(special)
            if found:
                return [*self._pieces(before), _SPECIALS[special], *self._pieces(after)]
        return self._merge([self._ids.get(symbol, UNKNOWN_ID) for symbol in phonemes])

    def _merge(self, ids: list[int]) -> list[int]:
        """Merge pairs, lowest merged id first and leftmost among equals, until none is left."""
        while True:
            found = [
                (self._merges[pair], place)
                for place, pair in enumerate(pairwise(ids))
                if pair in self._merges
            ]
            if not found:
                return ids
            number, place = min(found)
            ids = [*ids[:place], number, *ids[place + 2 :]]
