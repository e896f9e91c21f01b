"""What a wrong path or method is told."""

import httpx
import pytest

from tests.app.tools.answers import shape
from tests.app.tools.live_client import refused

SPEECH = "did you mean /v1/audio/speech?"


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/audio/speech", SPEECH),
        ("/v1/v1/audio/speech", SPEECH),
        ("/v1/audio/speech/", SPEECH),
        ("//v1/audio/speech", SPEECH),
        ("/v1//audio/speech", SPEECH),
        ("/openai/v1/audio/speech", SPEECH),
        ("/api/v1/audio/speech/", SPEECH),
        ("/v1/audio/speach", SPEECH),
        ("/v1/tts", "did you mean /tts?"),
        ("/tts/", "did you mean /tts?"),
        ("/v1/audio/voice", "did you mean /v1/audio/voices?"),
        ("/audio/voices/heart", "did you mean /v1/audio/voices/heart?"),
        ("/models/", "did you mean /v1/models?"),
        ("/v1/models/", "did you mean /v1/models?"),
        ("/v1/health", "did you mean /health?"),
        ("/healthz", "did you mean /health?"),
        ("/text-to-speech/heart/stream", "did you mean /v1/text-to-speech/heart/stream?"),
        ("/v1/dev/captioned_speech", "did you mean /dev/captioned_speech?"),
        ("/v1/audio/dialogue", "turns are spoken at POST /dev/dialogue"),
        ("/v1/audio/transcriptions", "does not transcribe"),
        ("/web/", "the studio is at /"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_path_that_is_not_there_is_told_which_is_meant(
    client: httpx.Client, method: str, path: str, hint: str
) -> None:
    answer = client.request(method, str(client.base_url).rstrip("/") + path)
    error = shape(answer)
    if method == "POST" and path == "/v1/models/":  # a model of no name, which is only read
        assert answer.status_code == 405
        return
    assert (answer.status_code, error["code"]) == (404, "not_found")
    assert error["message"].endswith(hint)


@pytest.mark.parametrize("path", ["/nowhere", "/", "/v1", "/foo/bar/baz", "/a" * 60, "/fav"])
def test_a_path_that_is_like_none_is_not_found_alone(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert shape(answer)["message"].endswith("not found")


@pytest.mark.parametrize("path", ["/v1/audio/speech/batch", "/v1/audio/speech/ws"])
def test_a_path_of_another_server_is_not_found_though_an_id_might_stand_there(
    client: httpx.Client, path: str
) -> None:
    answer = client.post(path, json={"items": [{"input": "Hi."}]})
    assert answer.status_code == 404
    assert shape(answer)["code"] == "not_found"


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/audio/voices", "GET, POST"),
        ("/v1/audio/voices/heart", "GET, DELETE"),
        ("/v1/audio/speech/0/audio", "GET, POST"),
        ("/v1/audio/speech/0", "GET"),
        ("/v1/audio/speech", "POST"),
        ("/v1/voices/add", "POST"),
        ("/v1/voices/other", "GET, DELETE"),
        ("/v1/models", "GET"),
        ("/v1/models/other", "GET"),
        ("/tts", "POST"),
        ("/health", "GET, HEAD"),
        ("/openapi.json", "GET, HEAD"),
    ],
)
@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "PATCH"])
def test_a_wrong_method_is_told_all_that_the_path_has(
    client: httpx.Client, method: str, path: str, methods: str
) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, methods)
    assert methods in shape(answer)["message"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/audio/speech/stream", "did you mean /v1/audio/speech/stream?"),
        ("/v1/audio/speech/stream/", "did you mean /v1/audio/speech/stream?"),
        ("/v1/v1/audio/speech/stream", "did you mean /v1/audio/speech/stream?"),
        ("/v1/realtime", "/v1/audio/speech/stream"),
        ("/v1/voices", "not found"),
        ("/", "not found"),
    ],
)
def test_a_websocket_of_a_wrong_path_is_told_the_same(
    client: httpx.Client, path: str, hint: str
) -> None:
    status, error = refused(client, path)
    assert (status, error["code"]) == (404, "not_found")
    assert error["message"].endswith(hint)
