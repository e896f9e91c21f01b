"""The phoneme tokenizer, made from a model's vocabulary alone.

Byte-pair encoding over the code points of a phoneme string, including spaces. Public VALL-E
checkpoints store tokens and ids but no merges; these follow from the vocabulary, because every
merged token consists of exactly two tokens with lower ids. The built-in model has none.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from models.config import BOS_ID, EOS_ID, UNKNOWN_ID

_SPECIALS: Final = {"<unk>": UNKNOWN_ID, "<bos>": BOS_ID, "</eos>": EOS_ID, "<mask>": 3}


class Tokenizer:
    """Phoneme strings to ids; ``symbols`` are the single code points with an id.

    Several tokens may share an id ("a" and "ä"); merges are defined on ids. Raises ValueError if an
    id is negative, special tokens have other ids than 0 to 3, or a token is not a merge of two
    tokens with lower ids.
    """

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
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
        return [BOS_ID, *self._pieces(phonemes), EOS_ID]

    def lengths(self, phonemes: str) -> list[int]:
        """Return how many symbols each id of `encode` stands for; BOS and EOS stand for none."""
        lengths, left = [], len(phonemes)
        for number in self._pieces(phonemes):
            lengths.append(min(self._lengths.get(number, 1), left))
            left -= lengths[-1]
        return [0, *lengths, 0]

    def _pieces(self, phonemes: str) -> list[int]:
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
