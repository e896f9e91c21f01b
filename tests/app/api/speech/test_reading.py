"""How a text was read, and where each utterance is in the sound."""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

from typing import Any

import httpx
import numpy as np
import pytest

from tests.app.tools.answers import report_of

RATE_HZ = 24_000
TEXT = "At 5 p.m. [pause:0.6s] Say [[həlˈoʊ]] to 3."
SPOKEN = {"input": TEXT, "seed": 3, "nar_levels": 0, "response_format": "pcm"}


def read(client: httpx.Client, text: str = TEXT, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/audio/phonemes", json={"input": text, **fields})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def test_a_text_is_read_as_it_would_be_spoken(toy_server) -> None:
    told = read(toy_server)
    first, second = told["utterances"]
    assert first["text"] == "At five P M."
    assert (first["pause_after_s"], second["pause_after_s"]) == (0.6, None)
    assert "[[həlˈoʊ]]" in second["text"]
    assert "həlˈoʊ" in second["phonemes"]
    assert told["language"] == "en"
    assert told["phonemes"] == len(first["phonemes"]) + len(second["phonemes"])
    assert read(toy_server, voice="toy", language="en") == told


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ({"voice": "nobody"}, 404),
        ({"voice": {"id": "nobody"}}, 404),
        ({"input": "[voice:nobody] Hello."}, 422),
        ({"input": "Hello. [voice:nobody] Hello."}, 422),
        ({"input": "[voice:toy] Hello."}, 200),
    ],
)
def test_a_voice_that_is_not_there_is_refused_whether_a_text_is_read_or_spoken(
    toy_server, wanted, status
) -> None:
    body = {"input": "Hello."} | wanted
    reading = toy_server.post("/v1/audio/phonemes", json=body)
    speaking = toy_server.post("/tts", json=body | {"max_duration_s": 0.2})
    assert (reading.status_code, speaking.status_code) == (status, status)
    if status >= 400:
        assert reading.json()["error"] == speaking.json()["error"]


@pytest.mark.slow
@pytest.mark.parametrize("speed", [1.0, 0.5, 1.7])
@pytest.mark.parametrize("stream", [False, True])
def test_a_report_says_how_each_utterance_was_read_and_where_it_is(
    toy_server, speed, stream
) -> None:
    answer = toy_server.post("/tts", json=SPOKEN | {"speed": speed, "stream": stream})
    sound = np.frombuffer(answer.content, "<i2")
    report = report_of(toy_server, answer)
    told, read_alone = report["utterances"], read(toy_server)["utterances"]
    assert [(one["text"], one["phonemes"]) for one in told] == [
        (one["text"], one["phonemes"]) for one in read_alone
    ]
    first, second = told
    assert first["start_s"] == 0
    end_s = first["start_s"] + first["duration_s"]
    assert second["start_s"] == pytest.approx(end_s + 0.6 / speed, abs=1e-4)
    assert second["start_s"] + second["duration_s"] == pytest.approx(len(sound) / RATE_HZ, abs=1e-3)
    for one in told:  # what is heard lies within its frames, which are 1/75 s at speed 1
        assert one["frame_s"] == pytest.approx(1 / 75 / speed)
        frames_s = len(one["codes"]) * one["frame_s"]
        assert 0 <= one["trimmed_s"] <= one["trimmed_s"] + one["duration_s"] <= frames_s + 1e-3
    middle_s = (end_s + second["start_s"]) / 2  # of the pause
    assert not sound[round(middle_s * RATE_HZ) - 240 :][:480].any()


def test_a_failure_of_reading_is_an_answer_and_a_failure_of_one_text_alone(client) -> None:
    answer = client.post("/v1/audio/phonemes", json={"input": "unreadable"})
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"
    assert read(client, "Hi.")["utterances"][0]["phonemes"] == "Hi."


def test_what_may_not_be_meant_is_told_in_header_reading_and_report(toy_server) -> None:
    text, noted = "Das ist nicht gut.", "looks German"
    reading = toy_server.post("/v1/audio/phonemes", json={"input": text}).json()
    assert noted in reading["warnings"][0]
    for more in ({}, {"stream": True}):
        wanted = {"input": text, "seed": 7, "max_duration_s": 0.5} | more
        answer = toy_server.post("/tts", json=wanted)
        assert noted in answer.headers["x-warning"]
        report = report_of(toy_server, answer)
        assert noted in report["warnings"][0]
    plain = toy_server.post("/tts", json={"input": "Fine.", "seed": 7, "max_duration_s": 0.5})
    assert "x-warning" not in plain.headers
