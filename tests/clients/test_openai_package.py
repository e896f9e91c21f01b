"""The `openai` package, as its readers use it, against a live server."""

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from tests.app.tools.decoding import decoded

TEXT = "Hello there. [pause:0.2s] This is it."
KNOBS = {"seed": 3, "max_duration_s": 0.5}
COMMON: dict[str, Any] = {"model": "tts-1", "voice": "alloy", "input": TEXT}


@pytest.fixture(scope="module")
def client(server: httpx.Client) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0) as one:
        yield one


@pytest.fixture(scope="module")
def samples(client: openai.OpenAI) -> np.ndarray:
    """What the request says, without loss."""
    speech = client.audio.speech.create(**COMMON, response_format="wav", extra_body=KNOBS)
    return decoded(speech.content)[0]


def test_the_openai_client_saves_a_whole_speech(client, samples, tmp_path) -> None:
    speech = client.audio.speech.create(**COMMON, extra_body=KNOBS | {"stream": False})
    speech.write_to_file(tmp_path / "hello.mp3")
    read, rate_hz = decoded((tmp_path / "hello.mp3").read_bytes())
    assert (len(read), rate_hz) == (len(samples), 24_000)
    assert speech.response.headers["x-finish-reason"] in {"stop", "length", "empty"}


@pytest.mark.parametrize("form", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
def test_the_openai_client_streams_a_speech_in_every_form(client, samples, form) -> None:
    sound = b""
    with client.audio.speech.with_streaming_response.create(
        **COMMON, response_format=form, stream_format="audio", extra_body=KNOBS
    ) as answer:
        assert answer.headers["transfer-encoding"] == "chunked"
        for chunk in answer.iter_bytes():
            sound += chunk
    read, rate_hz = decoded(sound, 24_000 if form == "pcm" else None)
    more_s = len(read) / rate_hz - len(samples) / 24_000
    assert 0 <= more_s <= (0.1 if form in {"mp3", "aac"} else 1 / 24_000)


def test_the_openai_client_reads_a_speech_as_events(client, samples) -> None:
    sound, last = b"", {}
    with client.audio.speech.with_streaming_response.create(
        **COMMON, response_format="pcm", stream_format="sse", extra_body=KNOBS
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line:
                assert line.startswith("data: ")
                last = json.loads(line.removeprefix("data: "))
                sound += b64decode(last.get("audio", ""))
    np.testing.assert_array_equal(decoded(sound, 24_000)[0], samples)
    assert last["type"] == "speech.audio.done"
    assert last["usage"]["total_tokens"] == sum(
        last["usage"][one] for one in ("input_tokens", "output_tokens")
    )


def test_the_openai_client_may_send_speed_and_a_voice_as_an_object(client, samples) -> None:
    wanted = COMMON | {"voice": {"id": "toy"}, "model": "gpt-4o-mini-tts-2025-12-15"}
    speech = client.audio.speech.create(
        **wanted, response_format="flac", speed=1.5, extra_body=KNOBS
    )
    assert len(decoded(speech.content)[0]) == round(len(samples) / 1.5)


def test_the_openai_client_lists_the_models(client) -> None:
    names = [model.id for model in client.models.list()]
    assert names == ["toy", "tts-1", "tts-1-hd", "gpt-4o-mini-tts", "kokoro"]
    for name in names:
        assert client.models.retrieve(name).id == name
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("whisper-1")


@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({"voice": "nobody"}, openai.NotFoundError, "voice"),
        ({"model": "whisper-1"}, openai.NotFoundError, "model"),
        ({"speed": 9}, openai.UnprocessableEntityError, "speed"),
        ({"extra_body": {"temprature": 1}}, openai.UnprocessableEntityError, "temprature"),
    ],
)
def test_errors_have_their_class_and_name_the_field(client, fields, kind, param) -> None:
    with pytest.raises(kind) as refused:
        client.audio.speech.create(**COMMON | fields)
    assert refused.value.param == param
    assert refused.value.request_id
