"""SSML and speakers in a text: what is spoken, what is refused, and that packets do not matter."""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.text import TextError
from models.text.incremental.text import GrowingText, pieces
from models.text.ssml import SsmlRewriter, refuse
from tests.models.text.reading import prepare


def rewrite(text: str) -> str:
    rewriter = SsmlRewriter()
    return rewriter.push(text) + rewriter.end()


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
        ('<prosody rate="slow">Hi.</prosody> You', " [rate:0.75]Hi. [rate:1] You"),
        ("<Prosody rate = ' X-FAST '>Hi.</Prosody >", " [rate:1.5]Hi. [rate:1]"),
        (
            '<prosody rate="80%">a <prosody rate="+50%">b</prosody> c',
            " [rate:0.8]a  [rate:1.2]b [rate:0.8] c",
        ),
        ('<prosody rate="200%">a<prosody rate="default">b', " [rate:2]a [rate:1]b"),
        ('<prosody rate="slow"/>Hi.', "Hi."),
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
        ('<prosody rate="quick">Hi.</prosody>', "prosody"),
        ('<prosody rate="24%">Hi.</prosody>', "prosody"),
        ('<prosody rate="-80%">Hi.</prosody>', "prosody"),
        ('<prosody rate="401%">Hi.</prosody>', "prosody"),
        ('<prosody rate="1.5">Hi.</prosody>', "prosody"),
        ('<prosody rate="slow" pitch="high">Hi.</prosody>', "prosody"),
        ('<prosody rate="slow" pitch=high>Hi.</prosody>', "prosody"),
        ("<prosody>Hi.</prosody>", "prosody"),
        ("Hi.</prosody> You.", "prosody"),
        ("Hi <emphasis>you</emphasis>.", "emphasis"),
        ('<voice name="emma">Hi.</voice>', "voice"),
        ('<audio src="a.wav"/> Hi.', "audio"),
        ('<mstts:express-as style="sad">Hi.</mstts:express-as>', "mstts:express-as"),
        ('Hi <break time="soon"/>.', "break"),
        ('Hi <break strength="loud"/>.', "break"),
        ('<phoneme alphabet="x-sampa" ph="t">t</phoneme>', "phoneme"),
        ('<say-as interpret-as="date">13/41/2026</say-as>', "say-as"),
        ('<say-as interpret-as="date">May/5/2026</say-as>', "say-as"),
        ('<say-as interpret-as="date">10/５/2026</say-as>', "say-as"),
        ('<say-as interpret-as="cardinal">12</say-as>', "say-as"),
        ('<sub alias="">x</sub> Hi.', "sub"),
        ('Hi <sub alias="you">u.', "sub"),
    ],
)
def test_what_is_not_is_refused_by_name(written, name) -> None:
    with pytest.raises(TextError, match=f"<{name}>"):
        prepare(written)


@pytest.mark.parametrize(
    "written",
    [
        "<speak>Hello <break there.</speak>",
        "<speak>Hello <break there. And more. So on.</speak>",
        'Hi <break time="1s" there <b>x</b>.',
        '<prosody rate="slow" Hi.</prosody>',
        "<speak Hello.</speak>",
        "Hello </break there.",
        '<say-as interpret-as="characters" abc</say-as>',
        "Hi <break time=1s/> there.",
        "Hi <break time='1s/> there.",
        '<phoneme ph="t" x<break/>',
        '<sub alias="a" b</sub> is',
    ],
)
def test_a_tag_that_is_not_well_formed_is_refused(written) -> None:
    with pytest.raises(TextError, match=r"is not closed by|is not supported so"):
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


@pytest.mark.parametrize("attribute", ["pitch", "volume", "contour", "range", "duration"])
def test_what_else_prosody_has_is_refused_by_name(attribute) -> None:
    with pytest.raises(TextError, match=f"its {attribute} cannot be set"):
        prepare(f'<prosody {attribute}="high" rate="slow">Hi.</prosody>')


def test_a_rate_holds_until_the_next_and_begins_an_utterance() -> None:
    text = (
        '<prosody rate="slow">One. Two,</prosody> three <prosody rate="fast">four</prosody>! Five.'
    )
    assert [(one.text, one.rate, one.pause_after_s) for one in prepare(text)] == [
        ("One.", 0.75, None),
        ("Two,", 0.75, None),
        ("three", 1.0, 0.0),  # in the middle of a sentence
        ("four!", 1.25, None),
        ("Five.", 1.0, None),
    ]
    # That of the text around is no change.
    assert [one.text for one in prepare('So <prosody rate="100%">it</prosody> is.')] == [
        "So it is."
    ]


@pytest.mark.parametrize(
    "text",
    [
        'Hi. <prosody rate="slow">One. Two.</prosody><break time="1s"/> Three. Four.',
        "[voice:x] One. [rate:2] [pause:1s] Two. Three [rate:1] four. [voice:y] [pause:1s] Five.",
        '<prosody rate="slow">One. [voice:x] Two. Three.',
    ],
)
def test_each_piece_of_a_text_is_read_alone_as_in_the_whole(text) -> None:
    assert [one for piece in pieces(text) for one in prepare(piece)] == prepare(text)


@pytest.mark.parametrize(
    "text",
    ["[voice]Hi.", "[voice:]Hi.", "[ voice : x]Hi.", "[voice:x Hi.", "[rate:]Hi.", "[rate:x]Hi."],
)
def test_a_malformed_speaker_or_rate_is_refused(text) -> None:
    with pytest.raises(TextError, match="malformed"):
        prepare(text)


PARTS = st.sampled_from([
    *"<>/=\"'& .ab1[]:;",
    "<break", ' time="1s"', "/>", "<sub", ' alias="x y"', "</sub>", "<say-as", ">", "<speak>",
    ' interpret-as="date"', "</say-as>", "10/5/2026", "<phoneme", ' ph="t"', "&amp;", "&lt;",
    "[voice:ab]", "[pause:1s]", "Hello there. ", "[[t]]", "<prosody",
    ' rate="slow"', "</prosody>", "[rate:2]", "[rate:", " [pause:1s] ",
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
