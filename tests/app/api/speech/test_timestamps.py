"""When words are heard: whole and streamed, over every way of the wire, with the built-in voice."""

import json
from base64 import b64decode
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx
import pytest

from app.main import create_app
from app.settings import Settings
from tests.app.tools.live_client import live
from tests.app.tools.serving import served

pytestmark = pytest.mark.weights
RATE_HZ = 24_000
TEXT = "One of the best. [pause:0.5s] In the end, we won."
SPOKEN = {"input": TEXT, "seed": 1, "voice": "heart", "response_format": "pcm"}


@pytest.fixture(scope="module")
def builtin(tmp_path_factory) -> Iterator[httpx.Client]:
    voices = str(tmp_path_factory.mktemp("voices"))
    with served(create_app(Settings(device="cpu", voices=voices))) as client:
        yield client


def report_of(client: httpx.Client, answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = client.get(f"/v1/audio/speech/{answer.headers['x-request-id']}").json()
    return told


def words_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [word for utterance in report["utterances"] for word in utterance["words"]]


@pytest.fixture(scope="module")
def whole(builtin: httpx.Client) -> list[dict[str, Any]]:
    """The words of the whole answer at speed 1."""
    answer = builtin.post("/tts", json=SPOKEN | {"timestamps": "word"})
    return words_of(report_of(builtin, answer))


def test_the_report_has_every_word_in_order_within_its_utterance(builtin, whole) -> None:
    assert " ".join(word["word"] for word in whole) == TEXT.replace(" [pause:0.5s]", "")
    assert {word["spoken"] for word in whole} >= {"One", "won."}
    assert [(w["utterance"], w["index"]) for w in whole] == [
        *((0, n) for n in range(4)),
        *((1, n) for n in range(5)),
    ]
    assert not any(word["missing"] for word in whole)
    assert all(word["phonemes"] is None for word in whole)
    answer = builtin.post("/tts", json=SPOKEN | {"timestamps": "word"})
    for utterance in report_of(builtin, answer)["utterances"]:
        at_s = utterance["start_s"]
        for word in utterance["words"]:
            assert at_s <= word["start_s"] <= word["end_s"]
            at_s = word["end_s"]
        assert at_s <= utterance["start_s"] + utterance["duration_s"] + 1e-3
    assert whole[4]["start_s"] - whole[3]["end_s"] > 0.5  # the pause


def test_nothing_is_told_and_nothing_changes_when_it_is_off(builtin) -> None:
    plain = builtin.post("/tts", json=SPOKEN)
    timed = builtin.post("/tts", json=SPOKEN | {"timestamps": "phoneme"})
    assert plain.content == timed.content
    assert [one["words"] for one in report_of(builtin, plain)["utterances"]] == [None, None]


@pytest.mark.parametrize("speed", [1.0, 0.5, 2.0])
def test_events_tell_each_word_no_later_than_its_sound_and_in_the_end_the_same(
    builtin, whole, speed
) -> None:
    wanted = SPOKEN | {"timestamps": "word", "stream_format": "sse", "speed": speed}
    answer = builtin.post("/v1/audio/speech", json=wanted)
    told: dict[tuple[int, int], dict[str, Any]] = {}
    sent_s = 0.0
    for line in filter(None, answer.text.splitlines()):
        event = json.loads(line.removeprefix("data: "))
        if event["type"] == "speech.timestamps":
            for word in event["words"]:
                key = word["utterance"], word["index"]
                if key not in told:
                    assert word["start_s"] >= sent_s - 1e-3, word
                told[key] = word
        elif event["type"] == "speech.audio.delta":
            sent_s += len(b64decode(event["audio"])) / 2 / RATE_HZ
    assert list(told) == sorted(told)
    expected = [
        word | {name: pytest.approx(word[name] / speed, abs=2e-4) for name in ("start_s", "end_s")}
        for word in whole
    ]
    assert list(told.values()) == expected
    assert words_of(report_of(builtin, answer)) == list(told.values())


def test_a_session_tells_the_same(builtin, whole) -> None:
    with live(builtin) as session:
        done = session.say(TEXT[:12], TEXT[12:], seed=1, voice="heart", timestamps="word")
        told = {
            (word["utterance"], word["index"]): word
            for message in session.seen
            if message["type"] == "response.timestamps"
            for word in message["words"]
        }
    near = [
        word | {name: pytest.approx(word[name], abs=2e-4) for name in ("start_s", "end_s")}
        for word in whole
    ]
    assert list(told.values()) == near
    assert [word for one in done["utterances"] for word in one["words"]] == list(told.values())


def test_phonemes_are_timed_within_their_words(builtin, whole) -> None:
    answer = builtin.post("/tts", json=SPOKEN | {"timestamps": "phoneme"})
    words = words_of(report_of(builtin, answer))
    assert [word | {"phonemes": None} for word in words] == whole
    assert [one["phoneme"] for one in words[0]["phonemes"]] == ["w", "\u02c8\u028c", "n"]
    for word in words:
        times = [(one["start_s"], one["end_s"]) for one in word["phonemes"]]
        assert times[0][0] == word["start_s"]
        assert times[-1][1] == word["end_s"]
        assert all(first[1] == second[0] for first, second in pairwise(times))


@pytest.mark.parametrize("value", ["words", 1, True])
def test_another_value_is_refused_by_name(builtin, value) -> None:
    answer = builtin.post("/tts", json=SPOKEN | {"timestamps": value})
    assert answer.status_code == 422
    assert answer.json()["error"]["param"] == "timestamps"


def test_a_model_without_a_head_that_aligns_refuses_by_name(toy_server) -> None:
    answer = toy_server.post("/tts", json={"input": "Hi.", "timestamps": "word"})
    assert answer.status_code == 422
    assert answer.json()["error"]["param"] == "timestamps"
    assert "calibrate" in answer.json()["error"]["message"]


def test_several_speakers_speak_one_text_whole_and_in_pieces(builtin) -> None:
    text = "I am one. [voice:Bella] I am two. [voice:emma] I am three."
    answer = builtin.post("/tts", json=SPOKEN | {"input": text})
    report = report_of(builtin, answer)
    assert [one["voice"] for one in report["utterances"]] == [None, "Bella", "emma"]
    plain = SPOKEN | {"input": "I am one. I am two."}
    heart = report_of(builtin, builtin.post("/tts", json=plain))
    assert heart["utterances"][0]["codes"] == report["utterances"][0]["codes"]
    assert heart["utterances"][1]["codes"] != report["utterances"][1]["codes"]
    bella = report_of(builtin, builtin.post("/tts", json=plain | {"voice": "bella"}))
    assert bella["utterances"][1]["codes"] == report["utterances"][1]["codes"]
    with live(builtin) as session:
        done = session.say(text[:30], text[30:], seed=1, voice="heart")
        assert session.sound == answer.content
    assert [one["voice"] for one in done["utterances"]] == [None, "Bella", "emma"]


@pytest.mark.parametrize(
    "text", ["[voice:nobody] Hi.", "<prosody pitch='low'>Hi.</prosody>", "[voice:] Hi."]
)
def test_a_speaker_or_an_element_that_is_none_is_refused(builtin, text) -> None:
    answer = builtin.post("/tts", json=SPOKEN | {"input": text})
    assert answer.status_code == 422
    assert answer.json()["error"]["param"] == "input"
