"""Open WebUI lists models and voices, and shows errors; what it speaks is in `test_agents`."""

import httpx

from tests.clients.conftest import OPENAI_VOICES


def test_it_finds_models_and_voices(server: httpx.Client) -> None:
    models = server.get("/v1/audio/models").json()["models"]
    assert [model["id"] for model in models][:2] == ["toy", "tts-1"]
    voices = server.get("/v1/audio/voices").json()["voices"]
    named = {voice["id"]: voice["name"] for voice in voices}
    assert list(named) == ["toy", *OPENAI_VOICES]
    assert all(named.values())


def test_it_shows_what_is_wrong(server: httpx.Client) -> None:
    answer = server.post(
        "/v1/audio/speech", json={"model": "tts-1", "input": "Hi.", "voice": "Rachel"}
    )
    assert answer.status_code == 404
    assert "toy" in answer.json()["error"]["message"]
