"""SSML and speakers in a text: what is spoken, what is refused, and that packets do not matter."""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.text import TextError, prepare
from models.text.incremental.text import GrowingText, pieces
from models.text.ssml import SsmlRewriter, refuse, rewrite


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ('A<break time="500ms"/>b', "A[pause:500ms]b"),
        ("A <break time='.5s' />b", "A [pause:0.5s]b"),
        ('<break time="1.5S"></break>b', "[pause:1.5s]b"),
        ("A <break/> b", "A [pause:500ms] b"),
        ('A <BREAK strength="none"/>b', "A b"),
        ('the <sub alias="World Wide Web">WWW</sub>', "the World Wide Web"),
        ('<sub alias="salt &amp; pepper">s/p</sub>', "salt & pepper"),
        ('say <phoneme alphabet="ipa" ph="həlˈoʊ">hi</phoneme>', "say [[həlˈoʊ]]"),
        ('<say-as interpret-as="characters">abc-12</say-as>', "A B C 1 2"),
        ('<say-as interpret-as="date">2026-10-05</say-as>', "October 5, 2026"),
        ('<say-as interpret-as="date">10/5/2026</say-as>', "October 5, 2026"),
        ('<say-as interpret-as="date" format="dmy">5.10.2026</say-as>', "October 5, 2026"),
        ('<say-as interpret-as="date" format="my">10/2026</say-as>', "October 2026"),
        ('<?xml version="1.0"?><speak version="1.1">Hi.</speak>', "Hi."),
        ("fish &amp; chips, &quot;yes&quot;", 'fish & chips, "yes"'),
        ("a < b and c > d", "a < b and c > d"),
    ],
)
def test_what_is_supported_is_rewritten(written, spoken) -> None:
    assert rewrite(written) == spoken
    refuse(rewrite(written))


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ('<prosody rate="slow">Hi.</prosody>', "prosody"),
        ("Hi <emphasis>you</emphasis>.", "emphasis"),
        ('<voice name="emma">Hi.</voice>', "voice"),
        ('<audio src="a.wav"/> Hi.', "audio"),
        ('<mstts:express-as style="sad">Hi.</mstts:express-as>', "mstts:express-as"),
        ('Hi <break time="soon"/>.', "break"),
        ('Hi <break strength="loud"/>.', "break"),
        ('<phoneme alphabet="x-sampa" ph="t">t</phoneme>', "phoneme"),
        ('<say-as interpret-as="date">13/41/2026</say-as>', "say-as"),
        ('<say-as interpret-as="cardinal">12</say-as>', "say-as"),
        ('<sub alias="">x</sub> Hi.', "sub"),
        ('Hi <sub alias="you">u.', "sub"),
    ],
)
def test_what_is_not_is_refused_by_name(written, name) -> None:
    with pytest.raises(TextError, match=f"<{name}>"):
        prepare(written)


def test_tags_of_html_are_dropped_as_before() -> None:
    (utterance,) = prepare("H<sub>2</sub>O is <b>wet</b>.")
    assert "<" not in utterance.text


def test_breaks_pause_and_aliases_are_spoken() -> None:
    utterances = prepare('Hi.<break time="1s"/> The <sub alias="web">w</sub> is old.')
    assert [(one.text, one.pause_after_s) for one in utterances] == [
        ("Hi.", 1.0),
        ("The web is old.", None),
    ]
    with pytest.raises(TextError, match="longer than"):
        prepare('Hi. <break time="99s"/> You.')


def test_a_speaker_speaks_until_the_next() -> None:
    text = "I begin. [voice:Emma] I go on. [pause:1s] Still I. [voice:bella] And I, too. So."
    assert [(one.text, one.voice, one.pause_after_s) for one in prepare(text)] == [
        ("I begin.", None, None),
        ("I go on.", "Emma", 1.0),
        ("Still I.", "Emma", None),
        ("And I, too.", "bella", None),
        ("So.", "bella", None),
    ]
    assert [one.voice for one in prepare("Go on. [voice:x] End.", voice="y")] == ["y", "x"]


@pytest.mark.parametrize("text", ["[voice]Hi.", "[voice:]Hi.", "[ voice : x]Hi.", "[voice:x Hi."])
def test_a_malformed_speaker_is_refused(text) -> None:
    with pytest.raises(TextError, match="voice"):
        prepare(text)


PARTS = st.sampled_from([
    *"<>/=\"'& .ab1[]:;",
    "<break", ' time="1s"', "/>", "<sub", ' alias="x y"', "</sub>", "<say-as", ">", "<speak>",
    ' interpret-as="date"', "</say-as>", "10/5/2026", "<phoneme", ' ph="t"', "&amp;", "&lt;",
    "[voice:ab]", "[pause:1s]", "Hello there. ", "[[t]]", "<prosody>",
])  # fmt: skip


@given(parts=st.lists(PARTS, max_size=25), cuts=st.lists(st.integers(0, 150), max_size=8))
@example(parts=["<sub", ' alias="x y"', ">", "a", "</sub>", "Hello there. "], cuts=[4, 9, 15])
def test_packets_do_not_matter_and_every_text_is_read_or_refused(parts, cuts) -> None:
    text = "".join(parts)
    rewriter, growing = SsmlRewriter(), GrowingText()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    packets = [text[begin:end] for begin, end in pairwise(places)]
    assert "".join(map(rewriter.push, packets)) + rewriter.end() == rewrite(text)
    came = [piece for packet in packets for piece in growing.append(packet)]
    assert came + growing.end() == pieces(text)
    with suppress(TextError):
        assert prepare(text)
