"""Requests as frameworks of agents and Open WebUI send them, read as they read the answers."""

import json
from base64 import b64decode
from typing import Any

import httpx
import pytest

from tests.app.tools.decoding import decoded
from tests.clients.conftest import OPENAI_VOICES, SEED

INSTRUCTIONS = {"instructions": "Speak like a pirate."}  # which all but Open WebUI pass on
LIVEKIT: dict[str, Any] = {"voice": "ash", "response_format": "mp3", "speed": 1.0}
SENT: dict[str, tuple[dict[str, Any], str]] = {
    "Pipecat": ({"voice": "alloy", "response_format": "pcm"} | INSTRUCTIONS, "audio/pcm"),
    "a newer voice": ({"voice": "marin", "response_format": "pcm"} | INSTRUCTIONS, "audio/pcm"),
    # LiveKit tells events from sound by the type of the answer.
    "LiveKit": (LIVEKIT | INSTRUCTIONS | {"stream_format": "sse"}, "text/event-stream"),
    "LiveKit without events": (LIVEKIT | INSTRUCTIONS | {"model": "tts-1-hd"}, "audio/mpeg"),
    "Vercel's AI SDK": (
        {"voice": "alloy", "response_format": "wav", "speed": 1.2} | INSTRUCTIONS,
        "audio/wav",
    ),
    "Open WebUI": ({"model": "tts-1", "voice": "alloy"}, "audio/mpeg"),
}


@pytest.mark.parametrize("name", SENT)
def test_a_request_is_answered_with_sound_of_the_type_that_is_read(
    server: httpx.Client, name: str
) -> None:
    fields, kind = SENT[name]
    body = {"model": "gpt-4o-mini-tts", "input": "Hi.", "seed": SEED} | fields
    headers = {"authorization": "Bearer sk-none", "x-openwebui-user-name": "Ann"}
    answer = server.post("/v1/audio/speech", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].partition(";")[0] == kind
    assert answer.headers.get("x-ignored") == ("instructions" if "instructions" in fields else None)
    sound = answer.content
    if kind == "text/event-stream":
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line]
        sound = b"".join(b64decode(event.get("audio", "")) for event in events)
    assert decoded(sound, 24_000 if kind == "audio/pcm" else None)[0].any()


@pytest.mark.parametrize("path", ["/v1", "/v1/"])
def test_livekit_warms_its_connection_up(server: httpx.Client, path: str) -> None:
    assert server.get(path).status_code == 404  # any answer will do


def test_open_webui_finds_models_and_voices_and_shows_what_is_wrong(server: httpx.Client) -> None:
    models = server.get("/v1/audio/models").json()["models"]
    assert [model["id"] for model in models][:2] == ["toy", "tts-1"]
    voices = server.get("/v1/audio/voices").json()["voices"]
    named = {voice["id"]: voice["name"] for voice in voices}
    assert list(named) == ["toy", *OPENAI_VOICES]
    assert all(named.values())
    wrong = {"model": "tts-1", "input": "Hi.", "voice": "Rachel"}
    answer = server.post("/v1/audio/speech", json=wrong)
    assert answer.status_code == 404
    assert "toy" in answer.json()["error"]["message"]
