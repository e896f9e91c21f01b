"""Which phonemes are whose."""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text import TextError, phonemize, prepare
from models.text.words import word_spans


def read(text: str) -> list[tuple[str, str]]:
    pairs = []
    for utterance in prepare(text):
        spans = word_spans(utterance.text, utterance.phonemes, phonemize)
        pairs += [(word, utterance.phonemes[begin:end]) for word, begin, end in spans]
    return pairs


def test_words_that_are_spoken_as_one_group_are_told_apart() -> None:
    assert read("One of the best, in the end.") == [
        ("One", "wˈʌn"),
        ("of", "ʌv"),
        ("the", "ðə"),
        ("best", "bˈɛst"),
        ("in", "ɪn"),
        ("the", "ðɪ"),
        ("end", "ˈɛnd"),
    ]


def test_numbers_are_the_words_that_are_spoken_and_inline_phonemes_are_one_word() -> None:
    assert read('At 5 p.m. "[[həlˈoʊ]]", he said.') == [
        ("At", "æt"),
        ("five", "fˈaɪv"),
        ("P", "pˈiː"),
        ("M", "ˈɛm"),
        ("[[həlˈoʊ]]", "həlˈoʊ"),
        ("he", "hiː"),
        ("said", "sˈɛd"),
    ]


def test_words_beside_a_dash_or_an_ellipsis_are_two() -> None:
    text = "The store—and well…maybe [[wʌn]]—mother-in-law."
    words = ["The", "store", "and", "well", "maybe", "[[wʌn]]", "mother-in-law"]
    assert [word for word, _ in read(text)] == words
    assert read(text)[1] == ("store", "stˈɔːɹ")


@pytest.mark.parametrize("text", ["I'd known mother-in-law's things.", "A e-mail, well - no!"])
def test_no_mark_and_no_space_belongs_to_a_word(text: str) -> None:
    for _, phonemes in read(text):
        assert phonemes
        assert not set(phonemes) & set(" ,.!-—")


@given(st.text("abe ofthein'-.,0123 ", min_size=1, max_size=60))
def test_spans_come_in_order_within_the_phonemes(text: str) -> None:
    try:
        utterances = prepare(text)
    except TextError:
        return
    for utterance in utterances:
        at = 0
        for _, begin, end in word_spans(utterance.text, utterance.phonemes, phonemize):
            assert at <= begin <= end <= len(utterance.phonemes)
            at = end
