"""Texts as chat models, books and web pages write them are read alike whole and letter by letter.

1,000 texts of parts of every kind, from a seed: the pieces of a text that comes a letter at a time,
or in packets, are those of the whole. A piece may begin with what was no layout in the middle of a
line and is some alone; then nothing changes any more.
"""

import random
from itertools import pairwise
from typing import Final

import pytest

from models.text.incremental.text import GrowingText, pieces
from tests.models.text.layout.parts import PARTS
from tests.models.text.reading import prepare

TEXTS: Final = 1000
BATCHES: Final = 20


def written(seed: int) -> str:
    """Return a text of some parts of every kind."""
    draw = random.Random(seed)
    parts = [draw.choice(PARTS) for _ in range(draw.randint(1, 6))]
    return "".join(part + draw.choice(["\n", "\n\n", " ", "\n", ""]) for part in parts)


def in_packets(text: str, packets: list[str]) -> list[str]:
    growing = GrowingText()
    return [piece for packet in packets for piece in growing.append(packet)] + growing.end()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_text_is_cut_alike_whole_letter_by_letter_and_in_packets(batch: int) -> None:
    for seed in range(batch, TEXTS, BATCHES):
        text = written(seed)
        whole = pieces(text)
        assert in_packets(text, list(text)) == whole, (seed, text)
        draw = random.Random(seed)
        cuts = sorted({0, len(text), *(draw.randrange(len(text) + 1) for _ in range(5))})
        packets = [text[begin:end] for begin, end in pairwise(cuts)]
        assert in_packets(text, packets) == whole, (seed, text)
        alone = [one for piece in whole for one in pieces(piece)]
        assert [one for piece in alone for one in pieces(piece)] == alone, (seed, text)


@pytest.mark.parametrize("seed", range(0, TEXTS, 25))
def test_the_pieces_of_a_text_are_read_as_the_whole(seed: int) -> None:
    text = written(seed)
    whole = prepare(text, more=True)
    alone = [one for piece in pieces(text) for one in prepare(piece, more=True)]
    assert [one for one in alone if one.phonemes or one.pause_after_s] == [
        one for one in whole if one.phonemes or one.pause_after_s
    ]
