"""Speeches in other shapes are kept as all others are: their reports, audio and failures."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.main import create_app
from app.settings import Settings
from tests.app.tools.answers import refusal, report_of
from tests.app.tools.serving import served
from tests.fakes import FakeBackend, fake_engine

ELEVENLABS = "/v1/text-to-speech/default"
CAPTIONED = "/dev/captioned_speech"
WAV_HEAD_BYTES = 44
WHOLE: list[tuple[str, dict[str, Any]]] = [
    (ELEVENLABS, {}),
    (f"{ELEVENLABS}/with-timestamps", {}),
    (CAPTIONED, {"stream": False}),
]
STREAMED: list[tuple[str, dict[str, Any]]] = [
    (f"{ELEVENLABS}/stream", {}),
    (f"{ELEVENLABS}/stream/with-timestamps", {}),
    (CAPTIONED, {}),
    ("/tts", {"stream": True}),
]


def body(path: str, text: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"text" if path.startswith(ELEVENLABS) else "input": text} | fields


@pytest.fixture
def speaking() -> FakeBackend:
    return FakeBackend(chunk_s=0.1)


@pytest.fixture
def client(speaking: FakeBackend) -> Iterator[httpx.Client]:
    with served(create_app(Settings(), fake_engine(speaking))) as one:
        yield one


@pytest.mark.parametrize(("path", "fields"), WHOLE + STREAMED)
def test_a_report_and_the_audio_again(client, path, fields) -> None:
    answer = client.post(path, json=body(path, "Hello.", fields))
    assert answer.status_code == 200, answer.text
    told = report_of(client, answer)
    assert (told["request"]["input"], told["finish_reason"]) == ("Hello.", "stop")
    assert told["audio_s"] == pytest.approx(0.6)
    again = client.get(f"/v1/audio/speech/{told['id']}/audio")
    assert again.headers["content-type"] == "audio/wav"


def test_captions_cannot_be_events_or_go_on_from_nothing(client) -> None:
    for fields, status, param in (
        ({"stream_format": "sse"}, 422, "stream_format"),
        ({"voice": "nobody"}, 404, "voice"),
        ({"voice_aliases": {}}, 422, "voice_aliases"),
        ({"continue_from": {"id": "nobody", "frame": 1}}, 404, "id"),
    ):
        answer = client.post(CAPTIONED, json=body(CAPTIONED, "Hello.", fields))
        assert refusal(answer) == (status, param)
