"""ElevenLabs' shapes, on a real server with the built-in voice."""

import json
import re
from base64 import b64decode
from io import BytesIO
from typing import Any

import httpx
import pytest
import soundfile
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from app.compat.elevenlabs.speech import IDLE_QUERY, ElevenLabsRequest, VoiceSettings
from tests.app.tools.live_client import refused, serving, url_of
from tests.conftest import ROOT

KEY = "a-key-that-is-long-enough"
TEXT = "Hello there. We won."
WRITTEN = "Hello there. We won. "


def post(client: httpx.Client, path: str = "", **fields: Any) -> httpx.Response:
    query = {"output_format": fields.pop("output_format", "pcm_24000")}
    return client.post(f"/v1/text-to-speech/heart{path}", params=query, json=fields)


@pytest.mark.slow
@pytest.mark.weights
def test_whole_and_streamed_speech_are_ours(builtin) -> None:
    wanted: dict[str, Any] = {"text": TEXT, "seed": 1, "model_id": "eleven_multilingual_v2"}
    ours = builtin.post(
        "/v1/audio/speech",
        json={"input": TEXT, "seed": 1, "voice": "heart", "response_format": "pcm"},
    )
    for path in ("", "/stream"):
        answer = post(builtin, path, **wanted, voice_settings={"stability": 0.5})
        assert answer.status_code == 200, answer.text
        assert answer.content == ours.content
        assert answer.headers["x-ignored"] == "stability"
    mp3 = post(builtin, **wanted, output_format="mp3_44100_128")
    assert mp3.headers["content-type"] == "audio/mpeg"
    samples, _ = soundfile.read(BytesIO(mp3.content))
    assert len(samples) > 10_000


@pytest.mark.slow
@pytest.mark.weights
def test_timestamps_are_told_whole_and_streamed(builtin) -> None:
    wanted: dict[str, Any] = {"text": TEXT, "seed": 1, "voice_settings": {"speed": 2.0}}
    whole = post(builtin, "/with-timestamps", **wanted).json()
    lines = [
        json.loads(line)
        for line in post(builtin, "/stream/with-timestamps", **wanted).text.splitlines()
    ]
    assert b"".join(b64decode(line["audio_base64"]) for line in lines) == b64decode(
        whole["audio_base64"]
    )
    parts = [line["alignment"] for line in lines if line["alignment"]]
    for name, values in whole["alignment"].items():
        assert [value for part in parts for value in part[name]] == values
    alignment = whole["alignment"]
    assert "".join(alignment["characters"]) == WRITTEN
    assert whole["normalized_alignment"] == alignment  # nothing of it is said otherwise
    starts = alignment["character_start_times_seconds"]
    assert starts == sorted(starts)
    assert starts[-1] < len(b64decode(whole["audio_base64"])) / 2 / 24_000


@pytest.mark.weights
def test_text_in_pieces_is_spoken_over_the_websocket_with_its_alignment(builtin) -> None:
    path = "/v1/text-to-speech/heart/stream-input?output_format=pcm_24000&model_id=eleven_v3"
    sound, characters = b"", ""
    with connect(url_of(builtin, path)) as socket:
        for text in (" ", "Hello ", "there. We ", "won. ", ""):
            socket.send(json.dumps({"text": text, "try_trigger_generation": True}))
        while not (message := json.loads(socket.recv(timeout=60)))["isFinal"]:
            sound += b64decode(message["audio"])
            alignment = message["alignment"]
            characters += "".join(alignment["chars"]) if alignment else ""
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=60)
    assert socket.close_code == 1000
    assert characters == WRITTEN
    assert len(sound) > 48_000


IDLE_FIELDS: dict[str, Any] = {
    "previous_text": "Before.",
    "next_text": "After.",
    "previous_request_ids": ["a"],
    "next_request_ids": ["b"],
    "use_pvc_as_ivc": True,
    "apply_text_normalization": "on",
    "apply_language_text_normalization": False,
    "audio_effects": [],
}
IDLE_SETTINGS = {"stability": 0, "similarity_boost": 1, "style": 0, "use_speaker_boost": False}
USED = {
    "text",
    "model_id",
    "language_code",
    "seed_",
    "voice_settings",
    "pronunciation_dictionary_locators",
}


def test_every_field_that_does_nothing_is_named(toy_server) -> None:
    assert {*ElevenLabsRequest.model_fields} == USED | {*IDLE_FIELDS}
    assert {*VoiceSettings.model_fields} == {"speed", *IDLE_SETTINGS}
    answer = toy_server.post(
        "/v1/text-to-speech/toy",
        params={"output_format": "pcm_24000"} | dict.fromkeys(IDLE_QUERY, "1"),
        json={"text": "Hi.", "voice_settings": IDLE_SETTINGS | {"speed": 1}} | IDLE_FIELDS,
    )
    assert answer.status_code == 200, answer.text
    named = answer.headers["x-ignored"].split(", ")
    assert named == sorted([*IDLE_FIELDS, *IDLE_SETTINGS, *IDLE_QUERY])
    (told,) = [
        line
        for line in (ROOT / "docs/other-clients.md").read_text().splitlines()
        if "optimize_streaming_latency" in line
    ]
    assert {*re.findall(r"`([a-z_]+)`", told)} >= {*named}


@pytest.mark.weights
@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"text": "Hi.", "output_format": "mp3_9999"}, 422, "output_format"),
        ({"text": "Hi.", "output_format": "opus_44100_64"}, 422, "sample_rate"),
        ({"text": "Hi.", "model_id": "whisper-1"}, 404, "model"),
        ({"text": ""}, 422, "input"),
        ({"words": "Hi."}, 422, "text"),
        ({"text": "Hi.", "language_code": "tlh"}, 422, "language"),
        ({"text": "Hi.", "voice_settings": {"speed": 9}}, 422, "voice_settings.speed"),
    ],
)
@pytest.mark.parametrize("path", ["", "/stream", "/with-timestamps", "/stream/with-timestamps"])
def test_what_cannot_be_is_refused_by_name(builtin, path, fields, status, param) -> None:
    answer = post(builtin, path, **fields)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == param


@pytest.mark.weights
@pytest.mark.parametrize(
    ("path", "messages"),
    [
        ("heart/stream-input?output_format=mp3_9999", []),
        ("heart/stream-input", ["no json"]),
    ],
)
def test_a_session_that_cannot_be_is_closed_with_the_reason(builtin, path, messages) -> None:
    with connect(url_of(builtin, f"/v1/text-to-speech/{path}")) as socket:
        for message in messages:
            socket.send(message)
        assert json.loads(socket.recv(timeout=60))["message"]
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=60)
    assert socket.close_code == 1008


def test_a_key_is_sent_in_their_header() -> None:
    with serving(api_keys=f"me:{KEY}") as (client, _):
        for key, status in ((KEY, 200), ("another-key-12345", 401)):
            sent = {"xi-api-key": key}
            answer = client.post("/v1/text-to-speech/default", json={"text": "Hi."}, headers=sent)
            assert answer.status_code == status
            path = "/v1/text-to-speech/default/stream-input"
            if status == 200:
                with connect(url_of(client, path), additional_headers=sent):
                    pass
            else:
                assert refused(client, path, additional_headers=sent)[0] == status
