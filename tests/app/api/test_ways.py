"""A speech is the same whichever way it is asked for: whole, streamed, as events, over a socket."""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

from base64 import b64decode
from typing import Any

import httpx
import pytest

from tests.app.tools.answers import events_of, report_of
from tests.app.tools.live_client import live

RATE_HZ = 24_000
MARKED = '1. Hello there. Dr. Who [pause:0.2s] said "No. Never." twice! And then he left'
READ = "At 5 p.m. [pause:0.6s] Say [[həlˈoʊ]] to 3."
RATES = 'Glue the sheet. <prosody rate="50%">We won the game.</prosody> It is done.'
SPEAKERS = "I am one. [voice:Bella] I am two. [voice:emma] I am three."
WORDS = "One of the best. [pause:0.5s] In the end, we won."
SHORT = {"seed": 3, "max_duration_s": 1.5, "pause_s": 0.1}
TAKES = {"seed": 1, "max_duration_s": 0.5, "nar_levels": 0}
ENDING = {"seed": 1, "nar_levels": 0, "pause_s": 0.1234567, "logit_bias": {"512": 4}}
PCM = {"response_format": "pcm"}
BRANCH = {"entropix": True, "entropix_action": "branch", "entropix_helv_entropy": 0.0}
HEART = {"seed": 1, "voice": "heart"}
TIMED = HEART | {"timestamps": "word"}

# Text, what else is asked for, characters of a packet
OF_TOYS: list[tuple[str, dict[str, Any], int]] = [
    (MARKED, SHORT, 1),
    (MARKED, SHORT, 7),
    (MARKED, SHORT, 1000),
    ("One. Two.", SHORT | {"trace": True}, 4),
    (READ, {"seed": 3, "nar_levels": 0, "speed": 0.5, "trace": True}, 20),
    (READ, SHORT | {"speed": 1.5}, 9),
    (READ, SHORT | {"speed": 0.5, "loudness_lufs": -20.0}, 9),
    ("Hi. You.", TAKES | {"best_of": 3}, 5),
    ("Hi. You.", TAKES | {"beam_width": 3}, 5),
    ("Hi. You.", TAKES | BRANCH, 5),
    ("One. [pause:0.2s] Two. Three. Four.", ENDING | {"context_utterances": 2}, 5),
    ("One. [pause:0.2s] Two. Three. Four.", ENDING | {"cfg_strength": 2.0}, 5),
    ("One. [pause:0.2s] Two. Three. Four.", ENDING | {"logit_bias": {"512": 99}}, 5),
]
OF_THE_BUILT_IN: list[tuple[str, dict[str, Any], int]] = [
    (WORDS, TIMED, 12),
    (WORDS, TIMED | {"speed": 0.5}, 12),
    (RATES, TIMED, 25),
    (SPEAKERS, HEART, 30),
]


def check(client: httpx.Client, text: str, knobs: dict[str, Any], packet: int) -> None:
    wanted = knobs | PCM | {"input": text}
    streamed = client.post("/v1/audio/speech", json=wanted | {"stream": True})
    report = report_of(client, streamed)
    if "loudness_lufs" not in knobs:  # of a whole speech it is measured, of a stream followed
        whole = client.post("/tts", json=wanted | {"stream": False})
        assert whole.content == streamed.content
    sound, done = events(client, wanted)
    assert sound == streamed.content
    for told, reported in zip(done["utterances"], report["utterances"], strict=True):
        assert told == {name: reported[name] for name in told}
    with live(client) as session:
        said = session.say(*(text[n : n + packet] for n in range(0, len(text), packet)), **knobs)
        assert session.sound == streamed.content
        traces = [one for one in session.seen if one["type"] == "response.trace"]
    assert said["audio_bytes"] == len(session.sound)
    assert said["audio_s"] == pytest.approx(len(session.sound) / 2 / RATE_HZ)
    for name in ("codes_sha256", "finish_reason"):
        assert said[name] == done[name] == report[name]
    for told, reported in zip(said["utterances"], report["utterances"], strict=True):
        assert_near(told, reported)
    reports = client.get(f"/v1/audio/speech/{said['response_id']}").json()["utterances"]
    if "loudness_lufs" not in knobs:
        again = client.get(f"/v1/audio/speech/{said['response_id']}/audio", params=PCM)
        assert again.content == session.sound
    assert len(traces) == (len(reports) if knobs.get("trace") else 0)
    for number, (trace, reported) in enumerate(zip(traces, reports, strict=False)):
        assert {name: trace[name] for name in reported} == reported
        assert trace["utterance"] == number


def events(client: httpx.Client, wanted: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Return the sound and the last event, each word of which came no later than its sound."""
    sound, words = b"", {}
    *first, done = events_of(client.post("/tts", json=wanted | {"stream_format": "sse"}))
    for event in first:
        for word in event.get("words", ()):
            key = word["utterance"], word["index"]
            if key not in words:
                assert word["start_s"] >= len(sound) / 2 / RATE_HZ - 1e-3, word
            words[key] = word
        sound += b64decode(event.get("audio", ""))
    assert done["type"] == "speech.audio.done"
    told = [word for one in done["utterances"] for word in one["words"] or ()]
    assert [*words.values()] == told
    assert bool(told) == ("timestamps" in wanted)
    return sound, done


def assert_near(told: dict[str, Any], reported: dict[str, Any]) -> None:
    """See that both say the same; a session rounds times of each utterance, not of all."""
    for name, value in told.items():
        if name == "words" and value is not None:
            for word, other in zip(value, reported[name], strict=True):
                assert_near(word, other)
        elif isinstance(value, float):
            assert value == pytest.approx(reported[name], abs=2e-4), name
        else:
            assert value == reported[name], name


@pytest.mark.slow
@pytest.mark.parametrize(("text", "knobs", "packet"), OF_TOYS)
def test_every_way_gives_the_same(toy_server, text, knobs, packet) -> None:
    check(toy_server, text, knobs, packet)


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize(("text", "knobs", "packet"), OF_THE_BUILT_IN)
def test_every_way_tells_the_same_words_and_voices(builtin, text, knobs, packet) -> None:
    check(builtin, text, knobs, packet)
