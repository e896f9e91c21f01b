"""When words are heard: whole and streamed, over every way of the wire, with the built-in voice."""

from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.app.tools.answers import asked

pytestmark = pytest.mark.weights
TEXT = "One of the best. [pause:0.5s] In the end, we won."
SPOKEN = {"input": TEXT, "seed": 1, "voice": "heart", "response_format": "pcm"}


def words_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [word for utterance in report["utterances"] for word in utterance["words"]]


@pytest.fixture(scope="module")
def whole(builtin: httpx.Client) -> list[dict[str, Any]]:
    """The words of the whole answer at speed 1."""
    return words_of(asked(builtin, SPOKEN | {"timestamps": "word"})[0])


@pytest.mark.slow
def test_the_report_has_every_word_in_order_within_its_utterance(builtin, whole) -> None:
    assert " ".join(word["word"] for word in whole) == TEXT.replace(" [pause:0.5s]", "")
    assert {word["spoken"] for word in whole} >= {"One", "won."}
    assert [(w["utterance"], w["index"]) for w in whole] == [
        *((0, n) for n in range(4)),
        *((1, n) for n in range(5)),
    ]
    assert not any(word["missing"] for word in whole)
    assert all(word["phonemes"] is None for word in whole)
    for utterance in asked(builtin, SPOKEN | {"timestamps": "word"})[0]["utterances"]:
        at_s = utterance["start_s"]
        for word in utterance["words"]:
            assert at_s <= word["start_s"] <= word["end_s"]
            at_s = word["end_s"]
        assert at_s <= utterance["start_s"] + utterance["duration_s"] + 1e-3
    assert whole[4]["start_s"] - whole[3]["end_s"] > 0.5  # the pause


@pytest.mark.slow
def test_nothing_is_told_and_nothing_changes_when_it_is_off(builtin) -> None:
    report, plain = asked(builtin, SPOKEN)
    timed = builtin.post("/tts", json=SPOKEN | {"timestamps": "phoneme"})
    assert plain.content == timed.content
    assert [one["words"] for one in report["utterances"]] == [None, None]


@pytest.mark.slow
@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_words_are_told_where_they_are_heard_at_another_speed(builtin, whole, speed) -> None:
    words = words_of(asked(builtin, SPOKEN | {"timestamps": "word", "speed": speed})[0])
    assert words == [
        word | {name: pytest.approx(word[name] / speed, abs=2e-4) for name in ("start_s", "end_s")}
        for word in whole
    ]


@pytest.mark.slow
def test_phonemes_are_timed_within_their_words(builtin, whole) -> None:
    words = words_of(asked(builtin, SPOKEN | {"timestamps": "phoneme"})[0])
    assert [word | {"phonemes": None} for word in words] == whole
    assert [one["phoneme"] for one in words[0]["phonemes"]] == ["w", "\u02c8\u028c", "n"]
    for word in words:
        times = [(one["start_s"], one["end_s"]) for one in word["phonemes"]]
        assert times[0][0] == word["start_s"]
        assert times[-1][1] == word["end_s"]
        assert all(first[1] == second[0] for first, second in pairwise(times))


@pytest.mark.slow
def test_several_speakers_speak_one_text(builtin) -> None:
    text = "I am one. [voice:Bella] I am two. [voice:emma] I am three."
    report, _ = asked(builtin, SPOKEN | {"input": text})
    assert [one["voice"] for one in report["utterances"]] == [None, "Bella", "emma"]
    plain = SPOKEN | {"input": "I am one. I am two."}
    heart, _ = asked(builtin, plain)
    assert heart["utterances"][0]["codes"] == report["utterances"][0]["codes"]
    assert heart["utterances"][1]["codes"] != report["utterances"][1]["codes"]
    bella, _ = asked(builtin, plain | {"voice": "bella"})
    assert bella["utterances"][1]["codes"] == report["utterances"][1]["codes"]
