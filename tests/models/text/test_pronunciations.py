"""A dictionary says what is spoken for a word, and the word stays as it was written."""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

import pytest

from models.text import ENGLISH_SYMBOLS, phonemize
from models.text.pronunciations import PronunciationError, check_entries
from tests.models.text.reading import prepare

ENTRIES = {
    "SQL": "sequel",
    "Nguyen": "[[wˈɪn]]",
    "Los Angeles": "L A",
    "Rex": "[[ɹˈɛks]]",
    "o'brien": "oh bryan",
    "C++": "see plus plus",
    "polish": "[[pˈɑːlɪʃ]]",
    "Polish": "[[pˈoʊlɪʃ]]",
    "a b": "1 mile",
}

SPOKEN = [
    ("Use SQL.", "Use sequel."),
    ("Use sql.", "Use sql."),  # an entry with capitals is for the word as it is written
    ("NoSQL and SQLite", "NoSQL and SQLite"),
    ("In Los  Angeles.", "In L A."),
    ("O’Brien left.", "oh bryan left."),
    ("Learn C++ now", "Learn see plus plus now"),
    ("A b.", "one mile."),  # what an entry says is read as any text is
]


@pytest.mark.parametrize(("text", "spoken"), SPOKEN, ids=[row[0] for row in SPOKEN])
def test_whole_words_are_replaced(text: str, spoken: str) -> None:
    (utterance,) = prepare(text, pronunciations=ENTRIES)
    assert utterance.text == spoken
    written = " ".join(one.written for one in utterance.words)
    assert written == " ".join(text.split())


def test_phonemes_are_spoken_and_case_tells_entries_apart() -> None:
    (utterance,) = prepare("Nguyen and Polish polish.", pronunciations=ENTRIES)
    assert utterance.phonemes == "wˈɪn ænd pˈoʊlɪʃ pˈɑːlɪʃ."
    assert [one.written for one in utterance.words] == ["Nguyen", "and", "Polish", "polish."]


def test_a_possessive_ends_as_its_last_sound_asks() -> None:
    (utterance,) = prepare("Nguyen's Rex’s", pronunciations=ENTRIES)
    assert utterance.phonemes == "wˈɪnz ɹˈɛksɪz."


def test_a_text_without_a_word_of_the_dictionary_is_read_as_ever() -> None:
    text = "Dr. Smith paid $5.50. [[hˈaɪ]]!"
    assert prepare(text, pronunciations=ENTRIES) == prepare(text)
    assert prepare("Go. SQL", pronunciations={})[1].phonemes == phonemize("SQL.")


REFUSED = [
    ({"": "x"}, "no word"),
    ({"—": "x"}, "no word"),
    ({"x" * 101: "x"}, "no word"),
    ({"x": " "}, "write 1 to 200"),
    ({"x": "y" * 201}, "write 1 to 200"),
    ({"x": "[[g9]]"}, "'x': unknown symbols in inline phonemes"),
    ({"x": "[pause:1s]"}, "no other markup"),
    ({"x": "[voice:emma]"}, "no other markup"),
    ({"x": "[[a"}, "malformed markup"),
]


@pytest.mark.parametrize(("entries", "why"), REFUSED, ids=[row[1] for row in REFUSED])
def test_an_entry_that_cannot_be_spoken_is_named(entries: dict[str, str], why: str) -> None:
    with pytest.raises(PronunciationError, match=why):
        check_entries(entries, ENGLISH_SYMBOLS, 250)
