"""Which phonemes are whose, and how each word was written."""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text import TextError, phonemize
from models.text.words import word_spans
from tests.models.text.reading import prepare


def read(text: str) -> list[tuple[str, str]]:
    pairs = []
    for utterance in prepare(text):
        spans = word_spans(utterance.words, utterance.phonemes, phonemize)
        pairs += [(span.word, utterance.phonemes[span.begin : span.end]) for span in spans]
    return pairs


def test_words_that_are_spoken_as_one_group_are_told_apart() -> None:
    assert read("One of the best, in the end.") == [
        ("One", "wˈʌn"),
        ("of", "ʌv"),
        ("the", "ðə"),
        ("best,", "bˈɛst"),
        ("in", "ɪn"),
        ("the", "ðɪ"),
        ("end.", "ˈɛnd"),
    ]


def test_a_number_is_the_word_that_was_written_with_all_its_phonemes() -> None:
    assert read('At 5 p.m. "[[həlˈoʊ]]", he paid $100.') == [
        ("At", "æt"),
        ("5 p.m.", "fˈaɪv pˈiː ˈɛm"),
        ('"[[həlˈoʊ]]",', "həlˈoʊ"),
        ("he", "hiː"),
        ("paid", "pˈeɪd"),
        ("$100.", "wˈʌn hˈʌndɹɪd dˈɑːlɚz"),
    ]


WRITTEN = [
    ("Dr. Smith was 10am-ready.", ["Dr.", "Smith", "was", "10am-ready."]),
    ("On March 4, 2024, we met.", ["On", "March", "4, 2024,", "we", "met."]),
    ("The store—and well…maybe [[wʌn]]—mother-in-law.",
     ["The", "store—", "and", "well…", "maybe", "[[wʌn]]—", "mother-in-law."]),
    ("“Go — now,” 😀 she said.", ["“Go", "now,” 😀", "she", "said."]),
    ("Some code — or - well – not.", ["Some", "code", "or", "well", "not."]),
    ("5 – 3 = 2", ["5", "–", "3", "=", "2"]),
    ("# A **bold** [link](https://a.example/b) here", ["A", "bold", "link", "here"]),
    ("Salt & pepper: 3 × 4 = 12", ["Salt", "&", "pepper:", "3", "×", "4", "=", "12"]),
    ("See www.a.com/b now.", ["See", "www.a.com/b", "now."]),
    ("Ｆull ½ cup, naïve ﬁne.", ["Ｆull", "½", "cup,", "naïve", "ﬁne."]),
    ("One. Two: 2,027!", ["One.", "Two:", "2,027!"]),
    ("1. Milk.\n2. Eggs.", ["1.", "Milk.", "2.", "Eggs."]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WRITTEN, ids=[row[0][:20] for row in WRITTEN])
def test_words_are_as_they_were_written(text: str, words: list[str]) -> None:
    assert [word for word, _ in read(text)] == words


@pytest.mark.parametrize("text", ["I'd known mother-in-law's things.", "A e-mail, well - no!"])
def test_no_mark_and_no_space_belongs_to_the_phonemes_of_a_word(text: str) -> None:
    for _, phonemes in read(text):
        assert phonemes
        assert not set(phonemes) & set(" ,.!-—")


@given(st.text("abe ofthein'-.,0123 $%&—…\"", min_size=1, max_size=60))
def test_spans_come_in_order_within_the_phonemes(text: str) -> None:
    try:
        utterances = prepare(text)
    except TextError:
        return
    for utterance in utterances:
        at = 0
        for span in word_spans(utterance.words, utterance.phonemes, phonemize):
            assert at <= span.begin <= span.end <= len(utterance.phonemes)
            at = span.end


LETTERS = st.text("abcdefgh ,.!?-\"'0123456789$%", min_size=1, max_size=80)


@given(LETTERS)
def test_the_words_of_a_text_are_the_text(text: str) -> None:
    """Each letter and digit is in one word, in order, but for sentences without a sound."""
    try:
        utterances = prepare(text)
    except TextError:
        return
    words = "".join(one.written for utterance in utterances for one in utterance.words)
    assert "".join(filter(str.isalnum, words)) == "".join(filter(str.isalnum, text))
