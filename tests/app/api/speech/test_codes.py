"""Codes out and in, with the toy model."""

import io
import json
from typing import Any

import numpy as np
import pytest
import soundfile
from safetensors import safe_open
from safetensors.numpy import load, save

from app.api.schemas import SAFETENSORS
from app.main import create_app
from app.settings import BUILTIN_MODEL, Settings
from tests.app.tools.answers import events_of, path_of, refusal
from tests.app.tools.serving import served

HELLO = {"input": "Hi. You.", "seed": 3, "max_duration_s": 1, "speed": 2.0}


@pytest.fixture
def spoken(toy_server):
    answer = toy_server.post("/tts", json=HELLO)
    assert answer.status_code == 200
    return answer


def test_codes_come_as_json_and_as_tensors_and_give_the_same_audio(toy_server, spoken) -> None:
    told = toy_server.get(path_of(spoken, "/codes")).json()
    report = toy_server.get(path_of(spoken)).json()
    assert told["utterances"] == [one["codes"] for one in report["utterances"]]
    assert told["codes_sha256"] == spoken.headers["x-codes-sha256"]
    binary = toy_server.get(path_of(spoken, "/codes"), headers={"accept": SAFETENSORS})
    assert binary.headers["content-type"] == SAFETENSORS
    tensors = load(binary.content)
    assert [tensors[str(n)].tolist() for n in range(len(tensors))] == told["utterances"]
    for content, kind in (
        (json.dumps({"utterances": told["utterances"]}).encode(), "application/json"),
        (binary.content, SAFETENSORS),
    ):
        answer = toy_server.post(
            path_of(spoken, "/audio"), content=content, headers={"content-type": kind}
        )
        assert answer.status_code == 200, answer.text
        assert answer.content == spoken.content


def test_other_codes_give_other_audio_and_fewer_levels_do(toy_server, spoken) -> None:
    told = toy_server.get(path_of(spoken, "/codes")).json()["utterances"]
    first = [frame[:1] for frame in told[0]]
    answer = toy_server.post(path_of(spoken, "/audio"), json={"utterances": [first, *told[1:]]})
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
    answer = toy_server.post(
        path_of(spoken, "/audio"), content=body, headers={"content-type": kind}
    )
    assert refusal(answer) == (status, "utterances" if status == 422 else None)


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


def test_half_a_minute_of_wav_is_taken(toy_server) -> None:
    sound = 0.2 * np.sin(np.arange(29 * 24_000) / 20).astype(np.float32)
    file = io.BytesIO()
    soundfile.write(file, sound, 24_000, format="wav")
    headers = {"content-type": "audio/wav"}
    answer = toy_server.post("/v1/audio/codes", content=file.getvalue(), headers=headers)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("content", [b"", b"no sound", b"RIFF" + bytes(100)])
def test_what_is_no_recording_is_refused(toy_server, content) -> None:
    answer = toy_server.post("/v1/audio/codes", content=content)
    assert refusal(answer) == (422, "file")


ASKED: dict[str, Any] = {
    "input": "Hi. [pause:0.1s] You. Hello there.",
    "seed": 3,
    "max_duration_s": 3,
    "response_format": "codes",
}
SHAPES: list[dict[str, Any]] = [{"stream": True}, {"stream_format": "sse"}]


def joined(events: list[dict[str, Any]], utterances: int) -> list[list[list[int]]]:
    """The codes of each utterance, of those events that have some."""
    codes: list[list[list[int]]] = [[] for _ in range(utterances)]
    for event in events:
        if event["type"] == "speech.codes.delta":
            codes[event["utterance"]] += event["codes"]
    return codes


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/tts", "/v1/audio/speech"])
def test_a_speech_may_be_asked_for_as_codes(toy_server, path) -> None:
    answer = toy_server.post(path, json=ASKED)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    told = answer.json()
    kept = toy_server.get(path_of(answer, "/codes"))
    assert told == kept.json()
    assert sum(map(len, told["utterances"])) == int(answer.headers["x-frames"]) > 0
    assert told["codes_sha256"] == answer.headers["x-codes-sha256"]
    sound = toy_server.post(path, json=ASKED | {"response_format": "wav"})
    assert sound.headers["x-codes-sha256"] == told["codes_sha256"]
    again = toy_server.get(path_of(answer, "/audio"))
    assert again.content == sound.content


@pytest.mark.slow
def test_a_speech_may_be_asked_for_as_tensors(toy_server, tmp_path) -> None:
    told = toy_server.post("/tts", json=ASKED).json()
    answer = toy_server.post("/tts", json=ASKED, headers={"accept": SAFETENSORS})
    assert answer.headers["content-type"] == SAFETENSORS
    tensors = load(answer.content)
    assert [tensors[str(n)].tolist() for n in range(len(tensors))] == told["utterances"]
    (tmp_path / "codes").write_bytes(answer.content)
    with safe_open(tmp_path / "codes", "numpy") as file:
        assert file.metadata() == {k: v for k, v in told.items() if k != "utterances"}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("knobs", [{}, {"nar_levels": 0}, {"best_of": 2}])
def test_streamed_codes_are_those_of_the_whole(toy_server, shape, knobs) -> None:
    whole = toy_server.post("/tts", json=ASKED | knobs).json()
    answer = toy_server.post("/tts", json=ASKED | knobs | shape)
    events = events_of(answer)
    assert joined(events, len(whole["utterances"])) == whole["utterances"]
    numbers = [one["utterance"] for one in events if "utterance" in one]
    assert numbers == sorted(numbers)
    assert {one["type"] for one in events} == {"speech.codes.delta", "speech.audio.done"}
    done = events[-1]
    assert done["codes_sha256"] == whole["codes_sha256"]
    assert done["response_id"] == answer.headers["x-request-id"]


def test_streamed_codes_come_while_the_rest_is_drawn(toy_server) -> None:
    wanted = {"input": "Hello there, this is a longer sentence.", "max_duration_s": 3, "seed": 3}
    wanted |= {"response_format": "codes", "stream": True}
    deltas = events_of(toy_server.post("/tts", json=wanted))[:-1]
    assert len(deltas) > 2
    assert all(one["utterance"] == 0 and one["codes"] for one in deltas)


@pytest.mark.parametrize("shape", SHAPES)
def test_codes_as_tensors_are_refused_where_a_stream_is_asked_for(toy_server, shape) -> None:
    accept = {"accept": SAFETENSORS}
    answer = toy_server.post("/v1/audio/speech", json=ASKED | shape, headers=accept)
    assert refusal(answer) == (422, next(iter(shape)))


def test_what_changes_nothing_is_not_refused(toy_server) -> None:
    fields = {"speed": 1.0, "loudness_lufs": None, "stream": False}
    assert toy_server.post("/tts", json=ASKED | fields).status_code == 200


@pytest.mark.parametrize("path", ["/dev/captioned_speech", "/v1/audio/speech/{id}/audio"])
def test_where_only_sound_can_be_sent_codes_are_refused(toy_server, spoken, path) -> None:
    if path.startswith("/dev"):
        answer = toy_server.post(path, json=ASKED)
    else:
        answer = toy_server.get(path_of(spoken, "/audio"), params={"response_format": "codes"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (422, "response_format")


@pytest.mark.slow
def test_an_id_that_comes_again_gives_the_codes_again(toy, tmp_path) -> None:
    settings = Settings(model=str(toy), device="cpu", voices=str(tmp_path), once_per_id=True)
    with served(create_app(settings)) as client:
        for number, fields in enumerate([{}, *SHAPES]):
            headers = {"x-request-id": f"mine-{number}"}
            first, again = (
                client.post("/tts", json=ASKED | fields, headers=headers) for _ in range(2)
            )
            assert "x-repeats" in again.headers
            if not fields:
                assert again.content == first.content
                continue
            one, other = events_of(first), events_of(again)
            assert joined(one, 9) == joined(other, 9)
            assert one[-1]["codes_sha256"] == other[-1]["codes_sha256"]
