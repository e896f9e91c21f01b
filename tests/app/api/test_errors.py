"""Bad input: what the caller gets, in the one shape, and that nothing is left behind."""

import json
import logging
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from app.api.errors import STATUS
from app.api.requests import cleaned
from app.api.schemas import TtsRequest
from app.engine import errors
from app.main import create_app
from app.settings import Settings
from tests.app.tools.answers import refusal, shape
from tests.app.tools.serving import served, until
from tests.fakes import fake_engine
from tests.toy.make_toy import make


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


# name: what is sent as well as a text, status, param, code
FIELDS: dict[str, tuple[str, int, str, str]] = {
    "unknown voice": ('"voice": "nobody"', 404, "voice", "voice_not_found"),
    "voice that climbs": ('"voice": "../../etc/passwd"', 404, "voice", "voice_not_found"),
    "voice with a zero byte": (r'"voice": "a\u0000"', 404, "voice", "voice_not_found"),
    "unknown model": ('"model": "bark"', 404, "model", "model_not_found"),
    "unknown field": ('"colour": "red"', 422, "colour", "extra_forbidden"),
    "misspelt knob": ('"temprature": 1', 422, "temprature", "extra_forbidden"),
    "text for a number": ('"temperature": "0.5"', 422, "temperature", "float_type"),
    "truth for a number": ('"top_k": true', 422, "top_k", "int_type"),
    "fraction for a count": ('"top_k": 1.5', 422, "top_k", "int_type"),
    "list for a number": ('"top_p": [1]', 422, "top_p", "float_type"),
    "out of range": ('"top_p": 1.5', 422, "top_p", "less_than_equal"),
    "not a number": ('"temperature": NaN', 422, "temperature", "finite_number"),
    "infinity": ('"temperature": Infinity', 422, "temperature", "finite_number"),
    "infinity by size": ('"temperature": 1e999', 422, "temperature", "finite_number"),
    "nan in a list": (
        '"nar_level_temperatures": [NaN]',
        422,
        "nar_level_temperatures.0",
        "finite_number",
    ),
    "unknown preset": ('"preset": "loud"', 422, "preset", "invalid_value"),
    "negative seed": ('"seed": -1', 422, "seed", "greater_than_equal"),
    "zero duration": ('"max_duration_s": 0', 422, "max_duration_s", "greater_than"),
    "unsupported format": ('"response_format": "wma"', 422, "response_format", "literal_error"),
    "unsupported stream": ('"stream_format": "ndjson"', 422, "stream_format", "literal_error"),
    "events that are no stream": (
        '"stream": false, "stream_format": "sse"',
        422,
        "stream_format",
        "value_error",
    ),
    "too slow": ('"speed": 0.2', 422, "speed", "greater_than_equal"),
    "too fast": ('"speed": 4.1', 422, "speed", "less_than_equal"),
    "no speed": ('"speed": NaN', 422, "speed", "finite_number"),
    "too loud": ('"loudness_lufs": 0', 422, "loudness_lufs", "less_than_equal"),
    "voice of no name": ('"voice": {}', 422, "voice", "string_type"),
    "voice with more than a name": (
        '"voice": {"id": "toy", "pitch": 2}',
        422,
        "voice",
        "string_type",
    ),
    "dated model of another": ('"model": "tts-2-2026-01-01"', 404, "model", "model_not_found"),
    "unknown language": ('"language": "tlh"', 422, "language", "invalid_value"),
    "null for a list's entry": ('"ban_tokens": [null]', 422, "ban_tokens.0", "int_type"),
    "null for no field": ('"nothing": null', 422, "nothing", "extra_forbidden"),
    "null in a text": ('"speed": "null"', 422, "speed", "float_type"),
    "null beside a fraction": ('"speed": null, "seed": 1.5', 422, "seed", "int_type"),
}

# name: body, status, param, code
RAW: dict[str, tuple[str | bytes, int, str | None, str]] = {
    "missing text": ("{}", 422, "input", "missing"),
    "no text but null": ('{"input": null}', 422, "input", "string_type"),
    "number for text": ('{"input": 5}', 422, "input", "string_type"),
    "too long a text": (json.dumps({"input": "a" * 4097}), 422, "input", "invalid_value"),
    "empty text": ('{"input": ""}', 422, "input", "invalid_value"),
    "blank text": ('{"input": " \\n\\t "}', 422, "input", "invalid_value"),
    "text of emoji": ('{"input": "😀🎉"}', 422, "input", "invalid_value"),
    "text of punctuation": ('{"input": "?!..."}', 422, "input", "invalid_value"),
    "control characters": ('{"input": "a\\u0007b"}', 422, "input", "invalid_value"),
    "foreign script": ('{"input": "こんにちは"}', 422, "input", "invalid_value"),
    "lone surrogate": ('{"input": "\\ud800"}', 422, None, "json_invalid"),
    "malformed json": ('{"input": "Hi"', 422, None, "json_invalid"),
    "not utf-8": (b'{"input": "\xff"}', 422, None, "json_invalid"),
    "deep json": ('{"input": ' + "[" * 5000, 422, None, "json_invalid"),
    "empty body": ("", 422, None, "json_invalid"),
    "list for an object": ("[]", 422, None, "model_type"),
    "null for an object": ("null", 422, None, "model_type"),
    "null in a list": ("[null]", 422, None, "model_type"),
    "null in malformed json": ('{"input": null', 422, None, "json_invalid"),
    "oversized body": (json.dumps({"input": "a" * 300_000}), 413, None, "body_too_large"),
}

BODIES: dict[str, tuple[Any, ...]] = RAW | {
    name: (f'{{"input": "Hi.", {fields}}}', *rest) for name, (fields, *rest) in FIELDS.items()
}


@pytest.mark.parametrize("path", ["/tts", "/v1/audio/speech"])
@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_gets_its_status_and_the_one_shape_and_changes_nothing(
    toy_server, toy, name, path
):
    body, status, param, code = BODIES[name]
    before = contents(toy)
    answer = toy_server.post(path, content=body, headers={"content-type": "application/json"})
    error = shape(answer)
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code), error
    assert len(answer.content) < 1000  # what was sent is not sent back
    assert contents(toy) == before


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "code"),
    [
        ("GET", "/tts", {}, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", {}, 405, "method_not_allowed"),
        ("GET", "/nowhere", {}, 404, "not_found"),
        ("GET", "/%2e%2e/etc/passwd", {}, 404, "not_found"),
        ("POST", "/tts", {"content-type": "text/plain"}, 415, "unsupported_media_type"),
        ("POST", "/tts", {}, 415, "unsupported_media_type"),
    ],
)
def test_a_bad_request_line_gets_the_one_shape(toy_server, method, path, headers, status, code):
    answer = toy_server.request(method, path, headers=headers)
    error = shape(answer)
    assert (answer.status_code, error["code"]) == (status, code)


def test_a_body_of_unknown_length_is_cut_off_too(toy_server):
    parts = (b" " * 50_000 for _ in range(7))
    answer = toy_server.post("/tts", content=parts, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    shape(answer)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"top_p": 2, "min_p": -1}, ("top_p: ", "min_p: ")),
        ({"response_format": "wma"}, ("'wav'",)),
        ({"input": "<prosody rate='quick'>Hi.</prosody>"}, ("prosody",)),
        ({"input": '<prosody rate="slow" pitch="high">Hi.</prosody>'}, ("pitch",)),
        ({"input": '<prosody volume="loud">Hi.</prosody>'}, ("volume",)),
        ({"input": '<prosody contour="(0%,+20Hz)">Hi.</prosody>'}, ("contour",)),
        ({"input": "[rate:5] Hi."}, ("rate:5",)),
        ({"input": "[rate:fast] Hi."}, ("rate",)),
    ],
)
def test_a_message_names_all_that_is_wrong_and_what_there_is(toy_server, fields, words):
    answer = toy_server.post("/tts", json={"input": "Hi."} | fields)
    error = shape(answer)
    assert (answer.status_code, error["param"]) == (422, next(iter(fields)))
    assert all(one in error["message"] for one in words)


TTS, PHONEMES = "/tts", "/v1/audio/phonemes"
BOTH = (TTS, PHONEMES)


@pytest.mark.parametrize(
    ("paths", "fields", "status", "param"),
    [
        (BOTH, {"input": None}, 422, "input"),
        (BOTH, {"input": ""}, 422, "input"),
        (BOTH, {"input": "?!"}, 422, "input"),
        (BOTH, {"input": "a" * 4097}, 422, "input"),
        (BOTH, {"input": "[[ß]]"}, 422, "input"),
        (BOTH, {"input": 5}, 422, "input"),
        ((TTS,), {"input": "[voice:nobody] Hi."}, 422, "input"),
        (BOTH, {"input": "[voice:] Hi."}, 422, "input"),
        (BOTH, {"input": "<prosody pitch='low'>Hi.</prosody>"}, 422, "input"),
        (BOTH, {"voice": "nobody"}, 404, "voice"),
        (BOTH, {"language": "tlh"}, 422, "language"),
        ((PHONEMES,), {"seed": 1}, 422, "seed"),
        ((TTS,), {"timestamps": "words"}, 422, "timestamps"),
        ((TTS,), {"timestamps": 1}, 422, "timestamps"),
        ((TTS,), {"timestamps": True}, 422, "timestamps"),
        (BOTH, {"dictionaries": ["nobody's"]}, 422, "dictionaries"),
        (BOTH, {"pronunciations": {"": "b"}}, 422, "pronunciations"),
        (BOTH, {"pronunciations": {"a": "[pause:1s]"}}, 422, "pronunciations"),
        (BOTH, {"pronunciations": {"a": "[[%]]"}}, 422, "pronunciations"),
    ],
    ids=str,
)
def test_what_cannot_be_read_or_spoken_is_refused_by_name(toy_server, paths, fields, status, param):
    for path in paths:
        got, field = refusal(toy_server.post(path, json={"input": "Hi."} | fields))
        assert (got, str(field).startswith(param)) == (status, True), (path, field)


def test_our_own_mistakes_are_a_500_in_the_one_shape():
    app = create_app(Settings(), fake_engine())
    app.state.live_sessions = None  # which `/metrics` counts
    with served(app) as client:
        answer = client.get("/metrics")
    assert answer.status_code == 500
    assert "NoneType" not in shape(answer)["message"]


def test_a_client_that_leaves_amid_its_body_is_no_mistake_of_ours(toy_server, caplog):
    address = (toy_server.base_url.host, toy_server.base_url.port)
    head = b"POST /tts HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with caplog.at_level(logging.INFO):
        with socket.create_connection(address) as client:
            client.sendall(head + b"Content-Length: 99\r\n\r\n{")
        until(lambda: "POST /tts 499" in caplog.text)
    assert all(record.levelno < logging.ERROR for record in caplog.records)


def test_every_error_of_the_engine_has_a_status():
    def all_kinds(kind: type[Exception]) -> set[type[Exception]]:
        return {kind}.union(*map(all_kinds, kind.__subclasses__()))

    for kind in all_kinds(errors.SpeechError) - {errors.SpeechError}:
        assert any(base in STATUS for base in kind.__mro__), kind


def truncated(folder: Path) -> None:
    file = folder / "lm-1.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def of_another_shape(folder: Path) -> None:
    file = folder / "codec.safetensors"
    tensors = load_file(file)
    tensors["quantizer.codebooks"] = tensors["quantizer.codebooks"][:, :-1].contiguous()
    save_file(tensors, file)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncated, "lm-1.safetensors is damaged"),
        (lambda folder: (folder / "lm-1.safetensors").unlink(), "holds no lm-"),
        (
            lambda folder: (folder / "codec.safetensors").unlink(),
            "codec.safetensors does not exist",
        ),
        (
            of_another_shape,
            r"quantizer.codebooks has shape \[8, 511, 8\], expected \[8, 512, 8\]",
        ),
        (lambda folder: (folder / "lm.json").write_text("{"), "lm.json"),
        (lambda folder: (folder / "voices" / "toy.json").write_text('{"sex": 1}'), "sex"),
    ],
)
def test_weights_that_cannot_be_used_are_told_by_ready_and_health(tmp_path, damage, message):
    folder = make(tmp_path / "toy")
    damage(folder)
    before = contents(tmp_path)
    app = create_app(Settings(model=str(folder), device="cpu"))
    with served(app, until_ready=False) as client:
        until(lambda: client.get("/health").status_code != 200)
        for answer in (
            client.get("/ready"),
            client.get("/health"),
            client.post("/tts", json={"input": "Hi."}),
        ):
            assert answer.status_code == 503
            assert re.search(message, shape(answer)["message"])
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "kind",
    ["Application/JSON", "APPLICATION/JSON; charset=utf-8", "application/Json ;q=1"],
)
def test_a_media_type_is_compared_without_case(toy_server, kind) -> None:
    body = b'{"input": "Hi.", "max_duration_s": 0.2}'
    answer = toy_server.post("/tts", content=body, headers={"content-type": kind})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ("temprature", "temperature"),
        ("top-p", "top_p"),
        ("voise", "voice"),
        ("cfg_strenght", "cfg_strength"),
        ("sample_rte", "sample_rate"),
        ("max_tokens", None),
        ("format", "response_format"),
        ("text", "input"),
    ],
)
def test_another_field_is_named_only_where_it_is_close(toy_server, field, meant) -> None:
    answer = toy_server.post("/tts", json={"input": "Hi.", field: 1})
    message = shape(answer)["message"]
    assert message.startswith(f"{field}: there is no such field")
    assert message.endswith(f"did you mean {meant}?" if meant else "no such field")


def test_null_is_the_default_of_every_field_that_has_one(toy_server) -> None:
    fields = {name: None for name in TtsRequest.model_fields if name != "input"}
    assert len(fields) > 100
    body = {"input": "Hi.", "seed": 3, "max_duration_s": 0.2}
    spoken = toy_server.post("/tts", json=body)
    nulls = toy_server.post("/tts", json=fields | body | {"ban_tokens": [1], "speed": None})
    assert (spoken.status_code, nulls.status_code) == (200, 200)
    assert nulls.headers["content-type"] == spoken.headers["content-type"] == "audio/wav"
    assert "transfer-encoding" not in nulls.headers  # `stream_format` was not asked for


def test_null_leaves_what_stands_beside_it_as_it_was_sent() -> None:
    raw = b'{"input": "a", "speed": null, "seed": 9223372036854775807, "temperature": 1e-5}'
    assert json.loads(cleaned(raw, TtsRequest)[0]) == {
        "input": "a",
        "seed": 2**63 - 1,
        "temperature": 1e-5,
    }
    untouched = b'{"input":"null"}'
    assert cleaned(untouched, TtsRequest)[0] is untouched
