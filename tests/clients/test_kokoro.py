"""Requests as the examples of Kokoro-FastAPI send them, read as they read the answers."""

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.main import create_app
from app.settings import Settings
from tests.app.tools.decoding import decoded
from tests.app.tools.serving import served

pytestmark = pytest.mark.weights

SENT: dict[str, Any] = {"model": "kokoro", "voice": "af_heart", "response_format": "mp3", "seed": 7}


@pytest.fixture(scope="module")
def builtin() -> Iterator[httpx.Client]:
    names = "kokoro=model,af_heart=heart,af_bella=bella,am_michael=puck"
    with served(create_app(Settings(device="cpu", aliases=names)), until_ready=False) as client:
        while client.get("/ready").status_code != 200:
            pass
        yield client


def captioned(client: httpx.Client, **fields: Any) -> httpx.Response:
    answer = client.post("/dev/captioned_speech", json=SENT | fields, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.slow
def test_the_captioned_example_of_kokoro_gives_words_with_times(builtin) -> None:
    told = captioned(builtin, input="Hello world! Welcome.", speed=1.0, stream=False).json()
    sound, rate_hz = decoded(b64decode(told["audio"]))
    words = told["timestamps"]
    assert [one["word"] for one in words] == ["Hello", "world!", "Welcome."]
    assert 0 <= words[0]["start_time"] < words[-1]["end_time"] <= len(sound) / rate_hz


@pytest.mark.slow
def test_a_dialogue_of_kokoro_is_spoken_by_both_voices(builtin) -> None:
    text = "[voice:af_bella] So? [voice:am_michael] It did."
    asked = {"input": text, "return_timestamps": True, "allow_voice_tags": True, "ssml": False}
    told = captioned(builtin, **asked, stream=False).json()
    said = [(one["word"], one["voice"]) for one in told["timestamps"]]
    assert said == [("So?", "bella"), ("It", "puck"), ("did.", "puck")]
    told = captioned(builtin, **asked | {"allow_voice_tags": False}, stream=False).json()
    assert {one["voice"] for one in told["timestamps"]} == {None}
    lines = captioned(builtin, **asked | {"stream": True}).text.splitlines()
    told = [one for line in lines for one in json.loads(line)["timestamps"]]
    assert [(one["word"], one["voice"]) for one in told] == said


def test_a_stream_is_lines_with_times_from_the_beginning_of_the_speech(builtin) -> None:
    answer = captioned(builtin, input="Hello world! Welcome.", stream=True, return_timestamps=True)
    parts = [json.loads(line) for line in answer.text.splitlines()]
    words = [word for part in parts for word in part["timestamps"]]
    assert all(set(word) == {"word", "start_time", "end_time"} for word in words)
    starts = [word["start_time"] for word in words]
    assert len(starts) == 3
    assert starts == sorted(starts)
    assert decoded(b"".join(b64decode(part["audio"]) for part in parts))[0].any()
