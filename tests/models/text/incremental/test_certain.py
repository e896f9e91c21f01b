"""Words of a sentence that is being written: what is read of them now is what will be."""

from itertools import islice
from pathlib import Path

import pytest

from models.text import TextError
from models.text.incremental.certain import certain_end
from models.text.incremental.text import GrowingText, pieces
from tests.models.text.reading import prepare, reading

JUDGED = Path(__file__).parents[4] / "lab" / "training" / "judging"
SHORT = reading(max_phonemes=70)


@pytest.mark.parametrize(
    ("text", "sure"),
    [
        ("", ""),
        ("The boat", "The"),  # which may yet be a boathouse
        ("The boat ", "The"),  # or the last one
        ("The boat -", "The"),  # or have a dash
        ("The boat w", "The boat"),
        ("The boat, which w", "The boat, which"),
        ("I don't know the well-known s", "I don't know the well-known"),
        ("It costs $25 ", "It"),
        ("It costs 25 ", "It costs"),
        ("It costs 25 at the o", "It costs"),
        ("It costs 25 at the old s", "It costs 25 at the old"),
        ("It costs 25, 30 and 40 of i", "It costs"),
        ("Ask Dr Rivera about i", "Ask"),
        ("We saw St. Paul there a", "We saw"),
        ('He said to "go" and d', "He said"),
        ("The NASA plan is o", "The"),
        ("Go on *now* please d", "Go"),
        ("This is\nthe end o", "This"),
        ("[pause:1s] and so ", ""),
    ],
)
def test_words_are_certain_up_to_what_may_be_read_otherwise(text: str, sure: str) -> None:
    assert text[: certain_end(text)] == sure


def test_a_sentence_without_an_end_is_not_looked_at_for_ever() -> None:
    text = "word " * 10_000
    assert 900 < certain_end(text) < 1000


def texts(count: int) -> list[str]:
    lines: list[str] = []
    for part in ("ordinary", "prose", "chat", "agents", "hard", "long"):
        own = (JUDGED / f"{part}.txt").read_text("utf-8").splitlines()
        lines += islice((line for line in own if line.strip()), count)
    return lines


@pytest.mark.parametrize("count", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_what_is_read_of_the_beginning_of_a_text_is_read_of_all_of_it(count: int) -> None:
    compared = 0
    for text in texts(count):
        growing, opened = GrowingText(), dict[str, tuple[str, int]]()
        cut = 0
        for at, letter in enumerate(f"{text} ", 1):
            cut += len(growing.append(letter))
            opened.setdefault(growing.open_part, (text[:at], cut))
        opened.pop("", None)
        # As it was written, and if the author stops where its last word has become certain.
        ends = [(begun, text, number) for begun, (_, number) in opened.items()]
        ends += [(begun, so_far, number) for begun, (so_far, number) in opened.items()]
        for begun, written, number in ends:
            try:
                read = prepare(pieces(written)[number], SHORT, more=True, lookahead=2)
            except TextError:
                continue
            found = prepare(begun, SHORT, more=True, lookahead=2, is_open=True)
            for one, other in zip(found, read[: len(found)], strict=True):
                if one.whole:
                    assert (one, one.versions) == (other, other.versions)
                else:
                    assert one is found[-1]
                    assert one.versions == other.versions[: len(one.versions)]
                    assert len(one.versions) < len(other.versions)
            compared += 1
    assert compared > 20 * count


def test_directions_hold_for_the_beginning_of_the_next_piece() -> None:
    growing = GrowingText()
    growing.append("[rate:0.8] One two. Three four five s")
    assert growing.open_part == "[rate:0.8]\n\nThree four five"
    growing.append("ix. N")
    assert growing.open_part == ""
