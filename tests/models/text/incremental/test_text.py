"""Pieces of a text that comes bit by bit: none depends on the packets, and nothing is lost."""

# ruff: noqa: RUF001 - marks of several scripts, and phonemes

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.text import TextError
from models.text.incremental.enclosure import PATIENCE_CHARS
from models.text.incremental.text import GrowingText
from tests.models.text.reading import prepare

WORDS = [
    *("Hello", "world", "the", "The", "I", "Dr", "St", "no", "min", "p.m", "U.S", "e.g", "J", "5"),
    *(
        '"',
        "(",
        ")",
        "[[",
        "]]",
        "“",
        "”",
        "'",
        "[pause:1s]",
        "[pause:",
        "[",
        "]",
        "。",
        "！",
        "你",
    ),
    *(".", "!", "?", "...", "…", ",", ". ", "? ", " ", "\n", "\n\n", "x" * 150),
]
texts = st.lists(st.sampled_from(WORDS), max_size=25).map("".join)


def pieces(*packets: str) -> list[str]:
    text = GrowingText()
    return [piece for packet in packets for piece in text.append(packet)] + text.end()


def packed(text: str, cuts: list[int]) -> list[str]:
    places = sorted({min(cut, len(text)) for cut in cuts})
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@given(texts, st.lists(st.integers(0, 400), max_size=12))
@example("Hello(. Hello\n\n)", [15])
def test_packets_change_no_piece(text, cuts) -> None:
    whole = pieces(text)
    assert pieces(*packed(text, cuts)) == whole
    assert pieces(*text) == whole


SENTENCES = [
    *("The birch canoe slid.", "Is it? Yes!", "Really?!", "What...?", "Wait...", "Well... maybe."),
    *("…and so on.", "I. Am.", "Plan B. Now.", "-- McCoy", "100%.", "You & me.", ":-) Fine."),
    *("It costs $5.50.", "In 1990.", "I have 1.", "3 to 4.", "5 came.", "Version 2.0. is out."),
    *("1. First item.", "2) Second one.", "\n3. On its line."),
    *("\n- A bullet. Two.", "\n# 1. Head\n"),
    *('\n1. "Quoted," he said.', "1. [pause:1s] Then.", "Chapter 1. The start."),
    *("Dr. J. Smith met Mr. Lee.", "J. R. R. Tolkien wrote.", "He lives at 5 Oak St.", "Mt. Fuji."),
    *("We left at 5 p.m.", "At 10 a.m. the train left.", "The U.S. Army won."),
    "In the U.S. It rained.",
    *("Acme Inc. Europe is big.", "John Jr. came.", "e.g. this one.", "etc.", "vs. them.", "Ph.D."),
    *("No. 7 is here.", "See fig. 5.", "see p. 5.", "Smith et al. found it.", "It is 5 min. long."),
    *("Sept. 5 was it.", "Fri. 5 Mar. 2020.", "Thu. May 5 it was.", "Mon. - Fri."),
    "5 ft. 2 in. tall.",
    *('"Stop!" he said.', 'He said "No. Never." twice.', "“Curly. Quotes.”"),
    "(An aside. Short.) Then.",
    *("'Go. Now.' she cried.", "‘Single. Curly.’ he said.", "He asked, 'Why?' She knew.", '"Open.'),
    *("'Tis late.", "It was the '90s.", "Rock 'n' roll.", "the dogs' bones."),
    "(Never closed. At all.",
    *("[pause:0.5s]", "Say [[həlˈoʊ]].", "\n\nA new one.", "Hello <b>bold. Yes</b>.", "<p>."),
]  # fmt: skip
written = st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=5).map(" ".join)


def read(*some: str) -> list[tuple[str, float | None]]:
    said = [utterance for one in some for utterance in prepare(one)]
    return [(utterance.phonemes, utterance.pause_after_s) for utterance in said]


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(written, st.lists(st.integers(0, 150), max_size=12))
@example("Yes! <p>. [pause:0.5s] No.", [7])
@example("Yes! <p [pause:0.5s] No.", [7])
@example("Yes! < [pause:0.5s] No.", [7])
def test_a_text_is_read_alike_as_a_whole_and_in_packets(text, cuts) -> None:
    try:
        whole = read(text)
    except TextError:
        return
    assert read(*pieces(*packed(text, cuts))) == whole


@example("-- McCoy \n\nA new one.")
@given(written)
def test_a_piece_of_a_piece_is_the_piece(text) -> None:
    for piece in pieces(text):
        assert pieces(piece) == [piece]


@given(texts)
def test_nothing_is_lost_and_nothing_is_said_twice(text) -> None:
    growing = GrowingText(layout=False)  # what layout takes away, such as marks of notes, is lost
    given_pieces = [*growing.append(text), *growing.flush()]
    assert "".join("".join([*given_pieces, growing._text]).split()) == "".join(text.split())


@given(texts, texts)
def test_what_comes_after_a_flush_changes_nothing_before_it(before, after) -> None:
    growing, other = GrowingText(), GrowingText()
    first = [*growing.append(before), *growing.flush()]
    assert [*other.append(before), *other.flush()] == first
    growing.append(after)
    assert all(any(map(str.isalnum, piece)) for piece in first)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Hello there. How are you?", "Hello there."),
        ("See Dr. Who. He is in.", "See Dr. Who."),
        ("I live at 5 Oak St. She does not. Or so.", "I live at 5 Oak St."),
        ("At 5 p.m. The train leaves. Now.", "At 5 p.m."),
        ("At 5 p.m. trains leave. Now.", "At 5 p.m. trains leave."),
        ('He said "Stop. Go." Then he left.', 'He said "Stop. Go."'),
        ("No end (yet. So it waits) here. Next.", "No end (yet. So it waits) here."),
        ("First\n\nsecond", "First"),
        ("One. [pause:1s] [pause:1s] Two.", "One. [pause:1s] [pause:1s]"),
        ("One [pause:1s] two.", "One [pause:1s]"),
        ("你好。再见。", "你好。"),
        ("See fig. 5. It is nice.", "See fig. 5."),
        ("## 1. A title\n\nThe text.", "## 1. A title"),
        ('1. "Stop," he said. Then.', '1. "Stop," he said.'),
        ("1. [[həlˈoʊ]] to you. Then.", "1. [[həlˈoʊ]] to you."),
        ("1. [pause:1s] Milk.", "1. [pause:1s]"),
        ("I have 1. That is all.", "I have 1."),
        ("It was in 1990. Then it ended.", "It was in 1990."),
        ("On Sept. 5 it was. Then.", "On Sept. 5 it was."),
        ("Open Mon. - Fri. He said.", "Open Mon. - Fri."),
        ("On Thu. May 5 it was. Then.", "On Thu. May 5 it was."),
        ("It was in May. 5 men came.", "It was in May."),
        ("He is 6 ft. 2 in. tall. Really.", "He is 6 ft. 2 in. tall."),
        ("We ran 5 km. Mary left.", "We ran 5 km."),
        ("At 90 km/h. it broke. Then.", "At 90 km/h. it broke."),
        ("Smith et al. found it. Then.", "Smith et al. found it."),
        ("'Tis late. He left.", "'Tis late."),
        ("Rock 'n' roll. Then.", "Rock 'n' roll."),
        ("One. ... [pause:1s] Two.", "One. ... [pause:1s]"),
        ("<i>. One. Two.", "<i>. One."),
        ("Say [[a. b]] now. Then.", "Say [[a. b]] now."),
    ],
)
def test_the_first_piece_is_the_first_sentence(text, first) -> None:
    growing = GrowingText()
    early = [piece for letter in text for piece in growing.append(letter)]
    assert (early or growing.end())[0] == first


def test_a_sentence_leaves_with_the_first_letter_of_the_next() -> None:
    growing = GrowingText()
    assert growing.append("Hello there. ") == []
    assert growing.append("H") == ["Hello there."]


def test_a_quotation_that_never_ends_holds_the_text_up_for_a_while_only() -> None:
    text = 'He said "Stop. ' + "And so on it went" + " and on" * PATIENCE_CHARS
    assert pieces(text)[0] == 'He said "Stop.'


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_a_blank_text_has_no_piece(text) -> None:
    assert pieces(text) == []


@pytest.mark.parametrize("text", ["...", "[pause:1s]", '"'])
def test_a_text_with_nothing_to_speak_is_left_for_others_to_refuse(text) -> None:
    assert pieces(text) == [text]
