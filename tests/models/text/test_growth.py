"""Texts word by word: what is known of a sentence's beginning depends on that alone."""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text import Utterance
from models.text.growth import places_of_words
from tests.models.text.reading import prepare, reading

SHORT = reading(max_phonemes=70)
TEXTS = [
    "Take the order to an old pier, and go.",
    'He cost $25 to go "home" — or so — he said!',
    "Your order number four two one seven has shipped yesterday from our warehouse in Leeds, and"
    " it should arrive with you by Thursday afternoon at the latest, if all goes well.",
    "Say [[həlˈoʊ wˈɜːld]] to me now please.",
    "A antidisestablishmentarianism-antidisestablishmentarianism-antidisestablishment word.",
]


def words_of(utterance: Utterance, version: int) -> list[str]:
    phonemes, begins = utterance.versions[version]
    ends = [*begins[1:], len(phonemes)]
    return [phonemes[begin:end].strip() for begin, end in zip(begins, ends, strict=True)]


def test_each_version_has_a_word_more_and_corrects_the_words_before_it() -> None:
    (one,) = prepare(TEXTS[0], SHORT, lookahead=2)
    read = [words_of(one, version) for version in range(len(one.versions))]
    assert [len(words) for words in read] == [3, 4, 5, 6, 7, 8, 9]
    assert read[0] == ["tˈeɪk", "ðɪ", "ˈɔːɹdɚ"]
    assert read[1][3] == "tuː"
    assert read[2][3] == "tʊ"  # before a vowel
    assert read[4][-1] == "pˈɪɹ," or read[5][-2] == "pˈɪɹ,"
    assert read[-1][-1] == "ɡˈoʊ."
    assert one.versions[-1].phonemes == one.phonemes
    assert not any(version.phonemes.endswith(".") for version in one.versions[:-1])


@pytest.mark.parametrize("text", TEXTS)
def test_a_sentence_has_the_words_and_phonemes_of_its_parts_and_fits(text: str) -> None:
    found = prepare(text, SHORT, lookahead=1)
    assert all(len(one.phonemes) <= 70 for one in found)
    joined = " ".join(one.text for one in found)
    assert joined == " ".join(one.text for one in prepare(text, SHORT)) or "anti" in text
    for one in found:
        assert not one.versions or one.versions[-1].phonemes == one.phonemes


def known_with(text: str, lookahead: int) -> dict[int, str]:
    """The phonemes of what is being spoken, by how many words of the text are known."""
    found: dict[int, str] = {}
    before = 0
    for one in prepare(text, SHORT, lookahead=lookahead):
        for version in one.versions:
            found[before + len(version.begins)] = version.phonemes
        before = max(found)
    return found


@pytest.mark.parametrize("text", [TEXTS[0], TEXTS[2]])
@pytest.mark.parametrize("lookahead", [1, 3])
def test_what_is_known_with_some_words_does_not_depend_on_those_behind_the_next(
    text: str, lookahead: int
) -> None:
    whole, words = known_with(text, lookahead), text.split()
    for count in range(lookahead + 2, len(words)):
        other = known_with(" ".join([*words[:count], "zebras."]), lookahead)
        sure = range(count)  # where a sentence is cut depends on the next word
        assert [other.get(n) for n in sure] == [whole.get(n) for n in sure]


def test_a_short_sentence_is_one_utterance_and_shorter_ones_are_whole_at_once() -> None:
    (one,) = prepare("Yes, sir.", SHORT, lookahead=2)
    assert [version.phonemes for version in one.versions] == [one.phonemes]
    assert one.phonemes == prepare("Yes, sir.", SHORT)[0].phonemes
    assert not prepare("Yes, sir.", SHORT)[0].versions


def test_long_sentences_are_cut_behind_clauses_before_phrases_or_where_they_must_be() -> None:
    found = [one.text for one in prepare(TEXTS[2], SHORT, lookahead=2)]
    assert found[0] == "Your order number four two one seven has shipped yesterday"
    assert all(len(one.split()) > 1 for one in found)


@given(st.lists(st.sampled_from(["a", "bc", "—", '"', "x,"]), max_size=9))
def test_places_of_words_are_in_order_and_hold_all_that_is_written(tokens: list[str]) -> None:
    line = " ".join(tokens)
    places = places_of_words(line)
    assert "".join(line[begin:end] for begin, end in places).replace(" ", "") == "".join(tokens)
    assert places == sorted(places)
    words = sum(any(map(str.isalnum, token)) for token in tokens)
    assert len(places) == (words or bool(tokens))
