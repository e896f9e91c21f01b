"""Pieces of a text that comes bit by bit: none depends on the packets, and nothing is lost."""

# ruff: noqa: RUF001 - marks of several scripts, and phonemes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text import prepare
from models.text.growing import PATIENCE_CHARS, GrowingText

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
def test_packets_change_no_piece(text, cuts) -> None:
    whole = pieces(text)
    assert pieces(*packed(text, cuts)) == whole
    assert pieces(*text) == whole


@given(texts)
def test_nothing_is_lost_and_nothing_is_said_twice(text) -> None:
    growing = GrowingText()
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
        ("I live at 5 Oak St. She does not. Or so.", "I live at 5 Oak St. She does not."),
        ("At 5 p.m. The train leaves. Now.", "At 5 p.m."),
        ("At 5 p.m. trains leave. Now.", "At 5 p.m. trains leave."),
        ('He said "Stop. Go." Then he left.', 'He said "Stop. Go."'),
        ('"Stop!" he said. Then he left.', '"Stop!" he said.'),
        ("Well... maybe. Or not.", "Well... maybe."),
        ("No end (yet. So it waits) here. Next.", "No end (yet. So it waits) here."),
        ("First\n\nsecond", "First"),
        ("One. [pause:1s] [pause:1s] Two.", "One. [pause:1s] [pause:1s]"),
        ("One [pause:1s] two.", "One [pause:1s]"),
        ("... Well. Now.", "... Well."),
        ("你好。再见。", "你好。"),
        ("See fig. 5. It is nice.", "See fig. 5."),
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


@pytest.mark.parametrize(
    "text",
    [
        "Hello there. This is the built in voice! Is it? It is.",
        'Dr. J. Smith lives at 5 Oak St. He said "I do. I do." Twice. At 5 p.m. we left.',
        "It costs $5.50. [pause:0.5s] Or 3 to 4. [pause:1s] [pause:1s] No. 7 is next...\n\nthe end",
        "One (of two. Or three.) is here. “Curly. Quotes.” Next one. e.g. this one. Done",
        "Say [[həlˈoʊ]]. Then [pause:200ms] go. Wait... what? Well, yes. I. Am. Here.",
    ],
)
def test_its_utterances_are_those_of_the_whole_text(text) -> None:
    whole = prepare(text)
    assert len(pieces(text)) > 2
    parts = [utterance for piece in pieces(text) for utterance in prepare(piece)]
    assert [(one.phonemes, one.pause_after_s) for one in parts] == [
        (one.phonemes, one.pause_after_s) for one in whole
    ]
