# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones
"""From a text to utterances: refusals, markup, borders."""

import re
from string import ascii_lowercase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.text import (
    ENGLISH_SYMBOLS,
    TextError,
    Utterance,
    normalise,
    phonemize,
    split,
)
from models.text.characters import clean
from models.text.source import Rewritten
from tests.models.text.reading import prepare, reading

REFUSED = [
    ("", "empty"),
    (" \n\t", "blank"),
    ("...", "nothing to speak"),
    ("—!?", "nothing to speak"),
    ("😀👍🏽🇺🇸", "nothing to speak"),
    ("[pause:1s]", "nothing to speak"),
    ("\x00\x1b", "nothing to speak"),
    ("\x85", "blank"),
    ("a\ud800", r"lone surrogate U\+D800 at character 1"),
    ("x" * 4097, "4097 characters; at most 4096"),
    ("привет", r"^this voice reads English only, not привет \(Cyrillic\)"),
    ("你好, ΑΒΓ!", r"English only, not 你好 \(CJK\), ΑΒΓ \(Greek\)"),
    ("[[həlˈoʊ", r"malformed markup '\[\[həlˈoʊ'"),
    ("[[]]", "empty inline phonemes"),
    ("[[g9]]", r"unknown symbols in inline phonemes: 'g' \(U\+0067\), '9' \(U\+0039\)"),
    (f"[[{'a' * 251}]]", "longer than 250 symbols"),
    ("a [pause]", r"malformed markup '\[pause\]'"),
    ("a [pause:5]", "malformed"),
    ("a [pause:-1s]", "malformed"),
    ("a [pause:1e1s]", "malformed"),
    ("a [pause:10.1s]", "longer than 10 s"),
    ("a [pause:10001ms]", "longer than 10 s"),
    ("a [pause:6s] [pause:6s]", "add up to more than 10 s"),
]


@pytest.mark.parametrize(("text", "why"), REFUSED, ids=[ascii(row[0][:20]) for row in REFUSED])
def test_a_text_that_cannot_be_spoken_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(TextError, match=why):
        prepare(text)


def test_a_text_longer_than_the_limit_that_is_given_is_refused() -> None:
    assert prepare("abc", max_chars=3)
    with pytest.raises(TextError, match="at most 2"):
        prepare("abc", max_chars=2)


SPLITS = [
    ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
    ("hello. how are you", ["hello.", "how are you"]),
    ("It was 3.5. 5 came at 1,000.50 a day.", [
        "It was three point five.", "five came at one thousand point five zero a day."]),
    ("Dr. Smith met Mr. Lee at 5 p.m. in the U.S. Army. He left.", [
        "Doctor Smith met Mister Lee at five P M in the U S Army.", "He left."]),
    ('"Stop! Now. Or else," he said. She ran.', ['"Stop! Now. Or else," he said.', "She ran."]),
    ('"Stop!" he said.', ['"Stop!" he said.']),
    ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
    ("“One. Two.” “Three.”", ['"One. Two."', '"Three."']),
    ("'Go. Now.' she cried.", ["'Go. Now.' she cried."]),
    ("He left (it was late. Very late) at once. Ok.", [
        "He left (it was late. Very late) at once.", "Ok."]),
    ("Well... maybe. Wait... What?", ["Well... maybe.", "Wait...", "What?"]),
    ("Title\n\nBody one\nbody two", ["Title", "Body one body two"]),
    ("- one\n- two", ["one", "two"]),
    ("# Head\ntext", ["Head", "text"]),
    ("1. The birch canoe slid.", ["one, The birch canoe slid."]),
    ("1. Milk.\n2. Eggs.", ["one, Milk.", "two, Eggs."]),
    ('1. "Go," he said.', ['one, "Go," he said.']),
    ("How many? 1. That is all.", ["How many?", "one.", "That is all."]),
    ("At 5 p.m. No. 7 came.", ["At five P M.", "Number seven came."]),
    ("Two. …and so on.", ["Two.", "and so on."]),
    ("... Yes. -- McCoy", ["Yes.", "McCoy"]),
    ("See example.com. Then go.", ["See example dot com.", "Then go."]),
    ("Really?! Yes!!!", ["Really?!", "Yes!!!"]),
    ("(Never. At all. Or so.", ["(Never.", "At all.", "Or so."]),  # never closed
    ("('Go. Now.')", ["('Go. Now.')"]),
    ("[pause for effect] Go.", ["[pause for effect] Go."]),  # a stage direction
]  # fmt: skip


@pytest.mark.parametrize(("text", "utterances"), SPLITS, ids=[row[0][:40] for row in SPLITS])
def test_a_text_is_split_into_its_sentences(text: str, utterances: list[str]) -> None:
    assert [utterance.text for utterance in prepare(text)] == utterances


def test_a_long_sentence_is_split_at_clauses_before_words() -> None:
    text = ", ".join(["the quick brown fox jumps over the dog"] * 12) + "."
    utterances = prepare(text)
    assert len(utterances) > 1
    assert all(utterance.text.endswith((",", ".")) for utterance in utterances)
    assert all(utterance.pause_after_s is None for utterance in utterances)


def test_a_cut_between_words_asks_for_no_pause() -> None:
    *cut, last = prepare("word " * 100)
    assert {utterance.pause_after_s for utterance in cut} == {0.0}
    assert last.pause_after_s is None


LONG = [
    # The two that a stranger heard cut within a number and a name.
    "He won one million two hundred and thirty-four thousand five hundred and sixty-seven dollars "
    "in the lottery of the state and he lives at two hundred and one Baker Street in the old part "
    "of the town near the river where the boats lie all the year round in the mud of the bank",
    "It cost $1,234,567.89 and 2,345,678 people of the United States of America who live at 1201 "
    "Martin Luther King Boulevard said that it was 3,456,789 times as much as the 12,345 dollars "
    "that the 45th President of the United States and George Washington Carver once paid for it",
]
WHOLE = [
    "one million two hundred and thirty-four thousand five hundred and sixty-seven dollars",
    "two hundred and one Baker Street",
    "two million three hundred and forty-five thousand six hundred and seventy-eight people",
    "United States of America",
    "Martin Luther King Boulevard",
    "three million four hundred and fifty-six thousand seven hundred and eighty-nine times",
    "George Washington Carver",
]


@pytest.mark.parametrize("text", LONG, ids=["words", "digits"])
def test_a_long_sentence_is_cut_before_conjunctions_and_not_in_a_number_or_name(text: str) -> None:
    utterances = prepare(text)
    said = normalise(clean(text))
    assert len(utterances) > 1
    assert " ".join(one.text for one in utterances) == said
    for phrase in WHOLE:
        assert (phrase in said) == any(phrase in one.text for one in utterances)
    lengths = [len(one.phonemes) for one in utterances]
    assert max(lengths) < 3 * min(lengths)
    assert {one.phonemes[-1] for one in utterances[:-1]} == {","}  # no fall before the end


def test_pauses_belong_to_the_utterance_before() -> None:
    assert prepare("[pause:1s]One. Two [pause:500ms][PAUSE:0.25s] three [pause:0s]") == [
        Utterance("", "", 1.0),
        Utterance("One.", phonemize("One.")),
        Utterance("Two", phonemize("Two."), 0.75),
        Utterance("three", phonemize("three."), 0.0),
    ]


def test_inline_phonemes_are_passed_as_they_are() -> None:
    (utterance,) = prepare("Say a [[həlˈoʊ, wˈɜːld]]!")
    assert utterance == Utterance("Say a [[həlˈoʊ, wˈɜːld]]!", "sˈeɪ ɐ həlˈoʊ, wˈɜːld!")
    assert prepare("[[ˈaʊ]]ch")[0].phonemes.startswith("ˈaʊ")


def test_inline_phonemes_may_use_the_symbols_of_another_model() -> None:
    assert prepare("[[g9]]", reading("g9 h"))[0].phonemes == "g9"


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [("Hello", "həlˈoʊ."), ("Hello.", "həlˈoʊ."), ("Hello?", "həlˈoʊ?"), ('"Hi"', '"hˈaɪ"')],
)
def test_a_sentence_without_an_end_gets_a_full_stop(text: str, phonemes: str) -> None:
    assert prepare(text)[0].phonemes == phonemes


def test_a_model_that_reads_no_full_stop_is_given_none() -> None:
    assert prepare("hi", reading("haɪˈ"))[0].phonemes == "hˈaɪ"


def test_characters_of_the_private_use_area_are_not_phonemes() -> None:
    assert prepare("\ue000hi\U000f0000 [[a]]")[0].phonemes == "hˈaɪ a."


MARKED = st.lists(
    st.one_of(
        st.text(max_size=20),
        st.sampled_from([
            "[[",
            "]]",
            "[pause:",
            "1s]",
            "[[həlˈoʊ]]",
            '"',
            "(",
            "Dr. ",
            "3.5",
            "$",
            ". ",
            "\n\n",
        ]),
        st.text(st.characters(max_codepoint=0x24F, exclude_categories=["Cc"]), max_size=40),
    ),
    max_size=12,
).map("".join)


@settings(max_examples=150, deadline=None)
@given(MARKED)
def test_any_text_is_prepared_or_refused(text: str) -> None:
    try:
        utterances = prepare(text, reading(max_phonemes=60))
    except TextError:
        return
    for place, utterance in enumerate(utterances):
        assert len(utterance.phonemes) <= 60
        assert set(utterance.phonemes) <= set(ENGLISH_SYMBOLS)
        assert utterance.phonemes or (place == 0 and utterance.pause_after_s is not None)


WORD = st.tuples(
    st.text(ascii_lowercase, min_size=1, max_size=9), st.sampled_from(["", "", "", *".,;:!?"])
).map("".join)
WORDS = st.lists(WORD, min_size=1, max_size=40).map(" ".join)


@settings(max_examples=100, deadline=None)
@given(WORDS, st.integers(min_value=60, max_value=250))
def test_splitting_keeps_every_word_in_order(text: str, max_phonemes: int) -> None:
    said = normalise(clean(text))
    utterances = split(Rewritten.of(said), max_phonemes=max_phonemes)
    words = re.findall(r"\w+", " ".join(utterance.text for utterance in utterances))
    assert words == re.findall(r"\w+", said)


QUOTED = st.lists(
    st.sampled_from(['"Oh no. Really? Yes!"', "(So. It is.)", "He left.", "She said", "and, yes,"]),
    min_size=1,
    max_size=6,
).map(" ".join)


@settings(max_examples=50, deadline=None)
@given(QUOTED)
def test_no_quotation_is_split(text: str) -> None:
    for utterance in split(Rewritten.of(text)):
        assert utterance.text.count('"') % 2 == 0
        assert utterance.text.count("(") == utterance.text.count(")")


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 9_999_999),
    st.integers(0, 99),
    st.sampled_from([
        "{}.{:02}",
        "${}.{:02}",
        "{:,}.{}",
        "{}:{:02}",
        "{}%",
        "{0}.{1}.{0}",
        "{}-{}",
    ]),
)
def test_no_number_is_split(whole: int, part: int, form: str) -> None:
    assert len(prepare(f"It is {form.format(whole, part)} now.")) == 1


@pytest.mark.slow
def test_signs_that_are_long_words_are_bounded_by_what_is_spoken() -> None:
    with pytest.raises(TextError, match="numbers and signs"):
        prepare("√" * 4096)
    assert len(prepare("$1.50 " * 600)) > 1
