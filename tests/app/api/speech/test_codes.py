"""Codes out and in, with the toy model."""

import json

import numpy as np
import pytest
from safetensors.numpy import load, save

from app.api.speech.codes import SAFETENSORS
from app.settings import BUILTIN_MODEL

HELLO = {"input": "Hi. You.", "seed": 3, "max_duration_s": 1, "speed": 2.0}


@pytest.fixture
def spoken(toy_server):
    answer = toy_server.post("/tts", json=HELLO)
    assert answer.status_code == 200
    return answer


def path_of(spoken, what: str) -> str:
    return f"/v1/audio/speech/{spoken.headers['x-request-id']}/{what}"


def test_codes_come_as_json_and_as_tensors_and_give_the_same_audio(toy_server, spoken) -> None:
    told = toy_server.get(path_of(spoken, "codes")).json()
    report = toy_server.get(path_of(spoken, "codes").removesuffix("/codes")).json()
    assert told["utterances"] == [one["codes"] for one in report["utterances"]]
    assert told["codes_sha256"] == spoken.headers["x-codes-sha256"]
    binary = toy_server.get(path_of(spoken, "codes"), headers={"accept": SAFETENSORS})
    assert binary.headers["content-type"] == SAFETENSORS
    tensors = load(binary.content)
    assert [tensors[str(n)].tolist() for n in range(len(tensors))] == told["utterances"]
    for content, kind in (
        (json.dumps({"utterances": told["utterances"]}).encode(), "application/json"),
        (binary.content, SAFETENSORS),
    ):
        answer = toy_server.post(
            path_of(spoken, "audio"), content=content, headers={"content-type": kind}
        )
        assert answer.status_code == 200, answer.text
        assert answer.content == spoken.content


def test_other_codes_give_other_audio_and_fewer_levels_do(toy_server, spoken) -> None:
    told = toy_server.get(path_of(spoken, "codes")).json()["utterances"]
    first = [frame[:1] for frame in told[0]]
    answer = toy_server.post(path_of(spoken, "audio"), json={"utterances": [first, *told[1:]]})
    assert answer.status_code == 200, answer.text
    assert answer.content != spoken.content


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "application/json", 422),
        (b"[1]", "application/json", 422),
        (b'{"utterances": 5}', "application/json", 422),
        (b'{"utterances": [[[1]]], "more": 1}', "application/json", 422),
        (b'{"utterances": [[[1]],[[1]],[[1]]]}', "application/json", 422),
        (b'{"utterances": [[[1], [1, 2]], [[1]]]}', "application/json", 422),
        (b'{"utterances": [[[1.5]], [[1]]]}', "application/json", 422),
        (b'{"utterances": [[[-1]], [[1]]]}', "application/json", 422),
        (b'{"utterances": [[[99999]], [[1]]]}', "application/json", 422),
        (b'{"utterances": [[["a"]], [[1]]]}', "application/json", 422),
        (b"no json", "application/json", 422),
        (b"no tensors", SAFETENSORS, 422),
        (save({"a": np.zeros((1, 1), np.int16)}), SAFETENSORS, 422),
        (b"{}", "text/plain", 415),
    ],
)
def test_what_is_no_codes_is_refused(toy_server, spoken, body, kind, status) -> None:
    answer = toy_server.post(path_of(spoken, "audio"), content=body, headers={"content-type": kind})
    assert answer.status_code == status, answer.text
    if status == 422:
        assert answer.json()["error"]["param"] == "utterances"


@pytest.mark.parametrize("method", ["get", "post"])
def test_codes_of_nothing_are_not_found(toy_server, method) -> None:
    path = "/v1/audio/speech/nobody/" + ("codes" if method == "get" else "audio")
    assert getattr(toy_server, method)(path).status_code == 404


def test_a_recording_is_encoded_alike_as_json_and_as_tensors(toy_server) -> None:
    content = (BUILTIN_MODEL / "voices" / "heart.flac").read_bytes()
    told = toy_server.post("/v1/audio/codes", content=content)
    assert told.status_code == 200, told.text
    codes = np.array(told.json()["codes"])
    seconds = len(codes) / float(told.json()["frame_rate_hz"])
    assert 1 < seconds < 12
    assert codes.min() >= 0
    accept = {"accept": SAFETENSORS}
    binary = toy_server.post("/v1/audio/codes", content=content, headers=accept)
    assert np.array_equal(load(binary.content)["0"], codes)


@pytest.mark.parametrize("content", [b"", b"no sound", b"RIFF" + bytes(100)])
def test_what_is_no_recording_is_refused(toy_server, content) -> None:
    answer = toy_server.post("/v1/audio/codes", content=content)
    assert answer.status_code == 422
    assert answer.json()["error"]["param"] == "file"
