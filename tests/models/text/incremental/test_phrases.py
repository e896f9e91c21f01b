"""Where a long sentence is cut: into parts that a speaker would make."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.text.incremental.phrases import cuts
from tests.models.text.reading import prepare, reading

PROSE = [
    "Whenever I find myself involuntarily pausing before coffin warehouses, and bringing up the "
    "rear of every funeral I meet, I account it high time to get to sea as soon as I can.",
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having "
    "nothing to do: once or twice she had peeped into the book her sister was reading, but it "
    "had no pictures or conversations in it.",
    "There was a table set out under a tree in front of the house, and the March Hare and the "
    "Hatter were having tea at it: a Dormouse was sitting between them, fast asleep.",
    "The children laughed and played in the garden behind the old stone house until the sun "
    "went down over the distant hills of the valley.",
    "She went to the market to buy some apples and pears for the cake that her mother wanted to "
    "bake for the birthday of her youngest brother.",
    "However little known the feelings or views of such a man may be on his first entering a "
    "neighbourhood, this truth is so well fixed in the minds of the surrounding families, that "
    "he is considered the rightful property of some one or other of their daughters.",
    "You can reset the password in the settings menu, which you find behind the small gear "
    "icon, or by writing an email to support@example.com.",
    "Before you begin, make sure that you have installed Python 3.12.1 and at least 16 GB of "
    "memory, because the training needs about 12 GB.",
    "Call me Ishmael some years ago never mind how long precisely having little or no money in "
    "my purse and nothing particular to interest me on shore I thought I would sail about a "
    "little.",
    "The committee decided to postpone the meeting until the new chairman had read all of the "
    "reports that the members of the staff had written during the long winter.",
    "If you want to keep the bread fresh for a week you should wrap it in a clean towel and "
    "store it in a dry place away from the light of the sun.",
    "He said that 1,234,567 people and their friends came to the party of the year.",
]  # fmt: skip
LEANING = re.compile(
    r"\b(?:the|a|an|my|his|her|their|of|to|and|or|in|on|at|with|very|that|is|was)$", re.IGNORECASE
)


@pytest.mark.parametrize("most", [60, 70, 80, 100])
@pytest.mark.parametrize("text", PROSE, ids=[text[:30] for text in PROSE])
def test_a_part_is_four_words_at_least_and_ends_behind_no_article(text: str, most: int) -> None:
    utterances = prepare(text, reading(max_phonemes=most))
    assert len(utterances) > 1
    for one in utterances:
        assert len(one.phonemes) <= most
        assert len(one.text.split()) >= 4
    for one in utterances[:-1]:
        assert not LEANING.search(one.text)
        assert (one.pause_after_s is None) == one.text.endswith((",", ":"))


CUT = [
    # A clause before words, though it is not the middle.
    ("I account it high time to go to sea, and that as soon as I can.", 60,
     ["I account it high time to go to sea,", "and that as soon as I can."]),
    # Not between "people" and "and their friends", nor within the number.
    ("He said that 1,234,567 people and their friends came.", 70,
     ["He said that one million two hundred and thirty-four thousand",
      "five hundred and sixty-seven people and their friends came."]),
    # An address is cut before its marks, a number in it never.
    ("It is at 192.168.100.200 now.", 60,
     ["It is at one hundred and ninety-two", "dot one hundred and sixty-eight",
      "dot one hundred dot two hundred now."]),
    ("We flew from Rio de Janeiro to the United States of America with George Washington.", 70,
     ["We flew from Rio de Janeiro", "to the United States of America with George Washington."]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "most", "parts"), CUT, ids=[row[0][:30] for row in CUT])
def test_a_sentence_is_cut_where_speech_pauses(text: str, most: int, parts: list[str]) -> None:
    assert [one.text for one in prepare(text, reading(max_phonemes=most))] == parts


NUMBERS = st.one_of(
    st.integers(0, 9_999_999).map("{:,}".format),
    st.integers(0, 99_999).map("${}.99".format),
    st.tuples(*[st.integers(0, 255)] * 4).map(lambda four: ".".join(map(str, four))),
    st.integers(1900, 2099).map("{}-12-25".format),
    st.integers(0, 999).map("https://a.example/cu{}/x".format),
)
BROKEN = re.compile(
    r"\b(?:hundred|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|and|point)$"
)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.lists(NUMBERS, min_size=1, max_size=3), st.sampled_from([60, 70, 80, 100]))
def test_no_number_is_cut_but_behind_its_thousands(numbers: list[str], most: int) -> None:
    text = " while the other one was ".join(["The first of them is", *numbers]) + " in the end."
    *parts, _ = prepare(text, reading(max_phonemes=most))
    for before, after in zip(parts, prepare(text, reading(max_phonemes=most))[1:], strict=True):
        assert not (BROKEN.search(before.text) and re.match(r"(?:and|one|two|three) ", after.text))


def test_a_line_of_one_word_has_no_cut() -> None:
    assert cuts("word", (), [0.0, 0.5, 1.0, 1.5, 2.0]) == []
