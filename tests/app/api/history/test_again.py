"""What made a speech, and the request that speaks it again."""

from typing import Any

import pytest

from app.version import VERSION
from tests.app.tools.answers import path_of, report_of


def test_a_report_says_what_made_the_speech(toy_server) -> None:
    ready = toy_server.get("/ready").json()
    answer = toy_server.post("/tts", json={"input": "Hi.", "max_duration_s": 0.3})
    assert report_of(toy_server, answer)["made_by"] == {
        "version": VERSION,
        "model": ready["model"],
        "model_sha256": ready["model_sha256"],
        "weights": "int8",
        "device": "cpu",
    }


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"seed": 5, "temperature": 0.8, "top_k": 40},
        {"preset": "stable", "voice": "alloy"},
        {"sampler_order": ["top_k", "temperature"], "logit_bias": {"5": 1.0}, "ban_tokens": [3]},
        {"speed": 1.25, "loudness_lufs": -20.0, "sample_rate": 16000},
        {"pronunciations": {"hi": "hello"}, "language": "en", "model": "tts-1"},
        {"ban_sequences": [{"codes": [1, 2]}], "min_frames": 5, "top_logprobs": 2},
    ],
)
def test_the_request_of_a_report_speaks_the_same_again(toy_server, fields: dict[str, Any]) -> None:
    first = toy_server.post("/tts", json={"input": "Hi.", "max_duration_s": 0.4} | fields)
    assert first.status_code == 200, first.text
    body = toy_server.get(path_of(first), params={"as": "request"}).json()
    again = toy_server.post("/tts", json=body)
    assert again.status_code == 200, again.text
    assert again.headers["x-codes-sha256"] == first.headers["x-codes-sha256"]
    assert again.content == first.content


def test_a_request_of_a_speech_that_is_not_stored_is_not_found(toy_server) -> None:
    assert toy_server.get("/v1/audio/speech/0", params={"as": "request"}).status_code == 404
