"""What is asked of the sound itself: formats, events, speed and loudness, over HTTP."""

from base64 import b64decode
from io import BytesIO
from typing import Any, get_args

import httpx
import numpy as np
import pytest
import soundfile

from app.audio.formats import MEDIA_TYPES, AudioFormat
from app.main import create_app
from app.settings import Settings
from models.voices.loudness import loudness_lufs
from tests.app.tools.answers import events_of
from tests.app.tools.decoding import decoded
from tests.app.tools.serving import served
from tests.fakes import FakeBackend, fake_engine

RATE_HZ = 24_000
FORMATS = get_args(AudioFormat)
HELLO = {"input": "Hello there. [pause:0.1s] This is it.", "max_duration_s": 0.5, "seed": 3}


def ask(client: httpx.Client, **fields: Any) -> httpx.Response:
    answer = client.post("/v1/audio/speech", json=HELLO | fields)
    assert answer.status_code == 200, answer.text
    return answer


def heard(sound: bytes, form: str) -> tuple[np.ndarray, int]:
    usual = {"pcm": RATE_HZ, "ulaw": 8000, "alaw": 8000}
    return decoded(sound, usual.get(form), form)


@pytest.fixture(scope="module")
def spoken(toy_server: httpx.Client) -> np.ndarray:
    """The samples of the speech, without loss."""
    return heard(ask(toy_server, response_format="wav").content, "wav")[0]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("stream", [False, True])
def test_every_format_holds_the_whole_speech(toy_server, spoken, form, stream):
    answer = ask(toy_server, response_format=form, stream=stream)
    assert answer.headers["content-type"] == MEDIA_TYPES[form]
    assert ("content-length" in answer.headers) == (not stream)
    read, rate_hz = heard(answer.content, form)
    more_s = len(read) / rate_hz - len(spoken) / RATE_HZ
    if form == "aac" or (form == "mp3" and stream):
        assert 0 <= more_s <= 0.1
    else:
        assert abs(more_s) <= 1 / rate_hz
    if form in {"wav", "pcm", "flac"}:
        np.testing.assert_array_equal(read, spoken)


@pytest.mark.parametrize(
    ("path", "form", "stream"),
    [("/v1/audio/speech", "mp3", True), ("/tts", "wav", False)],
)
def test_each_route_has_its_default(toy_server, path, form, stream):
    answer = toy_server.post(path, json=HELLO)
    assert answer.headers["content-type"] == MEDIA_TYPES[form]
    assert ("transfer-encoding" in answer.headers) == stream
    document = toy_server.get("/openapi.json").json()["paths"][path]["post"]
    schema = document["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["response_format"]["default"] == form


@pytest.mark.parametrize("form", FORMATS)
def test_it_streams_where_the_head_has_no_length_or_it_is_told_to(toy_server, form):
    chunked = "transfer-encoding" in ask(toy_server, response_format=form).headers
    assert chunked == (form not in {"wav", "flac"})
    told = ask(toy_server, response_format=form, stream_format="audio")
    assert told.headers["transfer-encoding"] == "chunked"


@pytest.mark.parametrize("form", FORMATS)
def test_events_hold_the_bytes_of_the_stream_and_tell_how_it_went(toy_server, form):
    streamed = ask(toy_server, response_format=form, stream=True)
    answer = ask(toy_server, response_format=form, stream_format="sse")
    *deltas, done = events_of(answer)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.text.endswith("\n\n")
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    assert b"".join(b64decode(event["audio"]) for event in deltas) == streamed.content
    assert done["type"] == "speech.audio.done"
    report = toy_server.get(f"/v1/audio/speech/{answer.headers['x-request-id']}").json()
    assert done["response_id"] == report["id"]
    for same in ("finish_reason", "codes_sha256", "timings"):
        assert done[same] == report[same]
    assert done["seed"] == 3
    assert done["audio_s"] == pytest.approx(report["audio_s"], abs=1 / 8000)
    assert done["usage"]["output_tokens"] == report["frames"]


def test_events_end_with_what_broke():
    with served(
        create_app(Settings(), fake_engine(FakeBackend(chunk_s=0.1, fail_at={"break": "ar"})))
    ) as client:
        answer = client.post("/tts", json={"input": "break", "stream_format": "sse"})
        *deltas, failed = events_of(answer)
        assert len(deltas) == 2
        assert failed["type"] == "speech.audio.error"
        assert failed["error"]["code"] == "generation_failed"
        assert set(failed["error"]) == {"message", "type", "param", "code"}
        report = client.get(f"/v1/audio/speech/{answer.headers['x-request-id']}").json()
        assert (report["finish_reason"], report["error"]) == ("error", failed["error"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("speed", [0.25, 0.8, 1.5, 4.0])
def test_speed_changes_the_length_and_no_code(toy_server, spoken, speed, stream):
    answer = ask(toy_server, response_format="flac", speed=speed, stream=stream)
    assert len(heard(answer.content, "flac")[0]) == round(len(spoken) / speed)
    plain = ask(toy_server, response_format="flac", stream=False).headers
    report = toy_server.get(f"/v1/audio/speech/{answer.headers['x-request-id']}").json()
    assert report["codes_sha256"] == plain["x-codes-sha256"]
    if not stream:
        told_ms = float(answer.headers["x-audio-ms"])
        assert told_ms == pytest.approx(1000 * len(spoken) / speed / RATE_HZ, abs=1)


def test_a_whole_speech_has_the_loudness_that_was_asked_for(toy_server, spoken):
    assert abs(loudness_lufs(spoken, RATE_HZ) + 20) > 1
    for text in ("One, two, three.", "Another one, which is quite a bit longer than that."):
        loud = {"loudness_lufs": -20, "max_duration_s": 1}
        answer = ask(toy_server, input=text, response_format="flac", **loud)
        read = heard(answer.content, "flac")[0]
        assert loudness_lufs(read, RATE_HZ) == pytest.approx(-20, abs=1)
        assert np.abs(read).max() < 0.9


@pytest.mark.parametrize("form", FORMATS)
def test_it_can_be_heard_again_in_any_format(toy_server, spoken, form):
    first = ask(toy_server, response_format="mp3", speed=2.0)
    name = first.headers["x-request-id"]
    url = f"/v1/audio/speech/{name}/audio"
    again = toy_server.get(url, params={"response_format": form})
    assert again.headers["content-type"] == MEDIA_TYPES[form]
    read, rate_hz = heard(again.content, form)
    more_s = len(read) / rate_hz - len(spoken) / 2 / RATE_HZ
    assert -1 / RATE_HZ <= more_s <= (0.1 if form == "aac" else 1 / RATE_HZ)


def test_a_format_that_is_none_is_refused_by_name(toy_server):
    name = ask(toy_server).headers["x-request-id"]
    answer = toy_server.get(f"/v1/audio/speech/{name}/audio?response_format=wma")
    assert (answer.status_code, answer.json()["error"]["param"]) == (422, "response_format")
    answer = toy_server.get(f"/v1/audio/speech/{name}/audio?format=mp3")
    assert (answer.status_code, answer.json()["error"]["param"]) == (422, "format")


def test_a_streamed_speech_can_be_read_by_others_than_libav(toy_server, spoken):
    for form in ("wav", "mp3", "opus"):
        answer = ask(toy_server, response_format=form, stream=True)
        with soundfile.SoundFile(BytesIO(answer.content)) as file:
            samples, rate_hz = file.read(10 * RATE_HZ), file.samplerate
        assert len(samples) / rate_hz == pytest.approx(len(spoken) / RATE_HZ, abs=0.1)
