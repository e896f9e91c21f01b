"""Bad input: what the caller gets, in the one shape, and that nothing is left behind."""

import json
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.api.errors import STATUS
from app.api.requests import cleaned_body
from app.api.schemas import TtsRequest
from app.api.services import ClientLimits
from app.engine import errors
from app.main import create_app
from app.settings import Settings
from tests.app.tools.answers import shape
from tests.app.tools.serving import connected, served, until
from tests.fakes import fake_engine
from tests.toy.make_toy import make


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


SPOKEN = ("/tts", "/v1/audio/speech")
READ = "/v1/audio/phonemes"
BRANCH = '"entropix": true, "entropix_action": "branch"'
CODES = '"response_format": "codes"'

# What is sent as well as a text, status, param, code, words of the message
SPEECH_FIELDS: list[tuple[Any, ...]] = [
    ('"model": "bark"', 404, "model", "model_not_found"),
    ('"model": "tts-2-2026-01-01"', 404, "model", "model_not_found"),
    ('"temperature": "warm"', 422, "temperature", "float_type"),
    ('"temperature": NaN', 422, "temperature", "finite_number"),
    ('"temperature": 1e999', 422, "temperature", "finite_number"),
    ('"top_k": true', 422, "top_k", "int_type"),
    ('"top_k": 1.5', 422, "top_k", "int_type"),
    ('"top_p": 2, "min_p": -1', 422, "top_p", "less_than_equal", "top_p: ", "min_p: "),
    ('"nar_level_temperatures": [NaN]', 422, "nar_level_temperatures.0", "finite_number"),
    ('"ban_tokens": [null]', 422, "ban_tokens.0", "int_type"),
    ('"preset": "loud"', 422, "preset", "invalid_value"),
    ('"seed": 9223372036854775808', 422, "seed", "less_than_equal"),
    ('"max_duration_s": 0', 422, "max_duration_s", "greater_than"),
    ('"response_format": "wma"', 422, "response_format", "literal_error", "'wav'"),
    ('"stream_format": "ndjson"', 422, "stream_format", "literal_error"),
    ('"stream": false, "stream_format": "sse"', 422, "stream_format", "invalid_value"),
    ('"stream_format": "sse", "voice": "nobody"', 404, "voice", "voice_not_found"),
    ('"speed": 0.2', 422, "speed", "greater_than_equal"),
    ('"speed": 4.1', 422, "speed", "less_than_equal"),
    ('"speed": NaN', 422, "speed", "finite_number"),
    ('"speed": "null"', 422, "speed", "float_type"),
    ('"speed": null, "seed": 1.5', 422, "seed", "int_type"),
    ('"loudness_lufs": 0', 422, "loudness_lufs", "less_than_equal"),
    ('"timestamps": "words"', 422, "timestamps", "literal_error"),
    ('"timestamps": 1', 422, "timestamps", "literal_error"),
    ('"timestamps": true', 422, "timestamps", "literal_error"),
    ('"timestamps": "word"', 422, "timestamps", "invalid_value", "calibrate"),
    ('"priority": "urgent"', 422, "priority", "literal_error"),
    ('"logit_bias": {"99999": 1}', 422, "logit_bias", "invalid_value", "99999"),
    ('"logit_bias": {"5": 1, "-1": 1}', 422, "logit_bias", "invalid_value", "-1"),
    ('"dry_sequence_breakers": [5, 99999]', 422, "dry_sequence_breakers", "invalid_value"),
    ('"beam_width": 2, "best_of": 2', 422, "best_of", "invalid_value", "beam_width"),
    ('"beam_width": 2, "backtrack": true', 422, "backtrack", "invalid_value", "beam_width"),
    ('"best_of": 2, "temperature": 0', 422, "best_of", "invalid_value", "temperature"),
    (f'{BRANCH}, "backtrack": true', 422, "backtrack", "invalid_value", "entropix_action"),
    (
        f'{BRANCH}, "entropix_branch_rollouts": 1',
        422,
        "entropix_branch_rollouts",
        "greater_than_equal",
    ),
    (f'{CODES}, "speed": 1.5', 422, "speed", "invalid_value"),
    (f'{CODES}, "speed": 1.5, "stream": true', 422, "speed", "invalid_value"),
    (f'{CODES}, "loudness_lufs": -16', 422, "loudness_lufs", "invalid_value"),
]
FIELDS: list[tuple[Any, ...]] = [
    ('"voice": "nobody"', 404, "voice", "voice_not_found"),
    ('"voice": "../../etc/passwd"', 404, "voice", "voice_not_found"),
    (r'"voice": "a\u0000"', 404, "voice", "voice_not_found"),
    ('"voice": {}', 422, "voice", "string_type"),
    ('"voice": {"id": "toy", "pitch": 2}', 422, "voice", "string_type"),
    ('"voice": {"id": null}', 422, "voice", "string_type"),
    ('"voice": {"id": 1}', 422, "voice", "string_type"),
    ('"voice": {"id": ["toy"]}', 422, "voice", "string_type"),
    ('"voice": {}', 422, "voice", "string_type"),
    ('"language": "tlh"', 422, "language", "invalid_value"),
    ('"colour": "red"', 422, "colour", "extra_forbidden"),
    ('"temprature": 1', 422, "temprature", "extra_forbidden"),
    ('"nothing": null', 422, "nothing", "extra_forbidden"),
    ('"dictionaries": ["nobody"]', 422, "dictionaries", "invalid_value"),
    ('"pronunciations": {"": "b"}', 422, "pronunciations..[key]", "string_too_short"),
    ('"pronunciations": {"a": "[pause:1s]"}', 422, "pronunciations", "invalid_value"),
    ('"pronunciations": {"a": "[[%]]"}', 422, "pronunciations", "invalid_value"),
]
# Text, words of the message; what else of a text is refused: `tests/models/text`
TEXTS = [
    ("",),
    ("こんにちは",),
    ("a" * 4097,),
    ("[voice:] Hi.",),
    ("[rate:5] Hi.", "rate:5"),
    ('<prosody rate="slow" pitch="high">Hi.</prosody>', "pitch"),
]
# Body, status, param, code
RAW: list[tuple[Any, ...]] = [
    ("{}", 422, "input", "missing"),
    ('{"input": null}', 422, "input", "string_type"),
    ('{"input": 5}', 422, "input", "string_type"),
    (r'{"input": "\ud800"}', 422, None, "json_invalid"),
    ('{"input": "Hi"', 422, None, "json_invalid"),
    ('{"input": null', 422, None, "json_invalid"),
    (b'{"input": "\xff"}', 422, None, "json_invalid"),
    ('{"input": ' + "[" * 5000, 422, None, "json_invalid"),
    ("", 422, None, "json_invalid"),
    ("[]", 422, None, "model_type"),
    ("null", 422, None, "model_type"),
    ("[null]", 422, None, "model_type"),
    (json.dumps({"input": "a" * 300_000}), 413, None, "body_too_large"),
]


def with_text(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(f'{{"input": "Hi.", {fields}}}', *rest) for fields, *rest in rows]


REFUSED: list[tuple[Any, ...]] = [
    *RAW,
    *with_text(FIELDS),
    *(
        (json.dumps({"input": text}), 422, "input", "invalid_value", *words)
        for text, *words in TEXTS
    ),
]


@pytest.mark.parametrize(
    ("path", "row"),
    [
        *((path, row) for path in (*SPOKEN, READ) for row in REFUSED),
        *((path, row) for path in SPOKEN for row in with_text(SPEECH_FIELDS)),
        *(
            (path, ('{"input": "[voice:nobody] Hi."}', 422, "input", "invalid_value"))
            for path in SPOKEN
        ),
        (READ, ('{"input": "Hi.", "seed": 1}', 422, "seed", "extra_forbidden")),
    ],
    ids=lambda one: str(one)[:60],
)
def test_a_bad_body_gets_its_status_and_the_one_shape_and_changes_nothing(
    toy_server, toy, path, row
):
    body, status, param, code, *words = row
    before = contents(toy)
    answer = toy_server.post(path, content=body, headers={"content-type": "application/json"})
    error = shape(answer)
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code), error
    assert all(word in error["message"] for word in words), error
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


def test_every_path_tells_all_its_methods(toy_server):
    paths = toy_server.get("/openapi.json").json()["paths"]
    assert len(paths) > 20
    for path, operations in paths.items():
        methods = {method.upper() for method in operations}
        answer = toy_server.options(re.sub(r"\{\w+\}", "x", path))
        assert answer.status_code == 405, path
        assert {*answer.headers["allow"].split(", ")} - {"HEAD"} == methods, path


def test_our_own_mistakes_are_a_500_in_the_one_shape():
    settings = Settings()
    broken: Any = None  # in place of the sessions that `/metrics` counts
    limits = replace(ClientLimits.of(settings), live_sessions=broken)
    app = create_app(settings, fake_engine(), limits=limits)
    with served(app) as client:
        answer = client.get("/metrics")
    assert answer.status_code == 500
    assert "NoneType" not in shape(answer)["message"]


def test_a_client_that_leaves_amid_its_body_is_no_mistake_of_ours(toy_server, caplog):
    head = b"POST /tts HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with caplog.at_level(logging.INFO):
        with connected(toy_server) as client:
            client.sendall(head + b"Content-Length: 99\r\n\r\n{")
        until(lambda: "POST /tts 499" in caplog.text)
    assert all(record.levelno < logging.ERROR for record in caplog.records)


def test_every_error_of_the_engine_has_a_status():
    def all_kinds(kind: type[Exception]) -> set[type[Exception]]:
        return {kind}.union(*map(all_kinds, kind.__subclasses__()))

    for kind in all_kinds(errors.SpeechError) - {errors.SpeechError}:
        assert any(base in STATUS for base in kind.__mro__), kind


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda toy: (toy / "lm-1.safetensors").write_bytes(b""), "lm-1.safetensors is damaged"),
        (lambda toy: (toy / "voices" / "toy.json").write_text('{"sex": 1}'), "sex"),
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
        ("max_tokenz", None),
        ("speaker", "voice"),
        ("lang", "language"),
        ("repeat_penalty", "repetition_penalty"),
        ("format", "response_format"),
        ("text", "input"),
    ],
)
def test_another_field_is_named_only_where_it_is_close(toy_server, field, meant) -> None:
    answer = toy_server.post("/tts", json={"input": "Hi.", field: 1})
    message = shape(answer)["message"]
    assert message.startswith(f"{field}: there is no such field")
    assert message.endswith(f"did you mean {meant}?" if meant else "no such field")


def test_a_field_of_speech_requests_alone_is_told_where_it_is(toy_server) -> None:
    answer = toy_server.post("/v1/text-to-speech/heart", json={"text": "Hi.", "top_p": 0.5})
    message = "top_p: there is no such field here; a body of POST /v1/audio/speech has it"
    assert shape(answer)["message"] == message


@pytest.mark.parametrize(
    ("fields", "way"),
    [
        ({"ref_audio": "data:audio/wav;base64,AA=="}, "docs/voices.md"),
        ({"ref_text": "Hello."}, "docs/voices.md"),
        ({"speaker_wav": "a.wav"}, "docs/voices.md"),
        ({"task_type": "Base"}, "docs/voices.md"),
        ({"task_type": "VoiceDesign"}, "docs/voices.md"),
        ({"max_tokens": 5}, "max_duration_s"),
    ],
)
def test_a_field_of_another_server_is_told_what_serves_its_purpose(toy_server, fields, way) -> None:
    answer = toy_server.post("/tts", json={"input": "Hi."} | fields)
    assert answer.status_code == 422
    assert way in shape(answer)["message"]


def test_a_mixed_voice_is_told_that_voices_are_not_mixed(toy_server) -> None:
    answer = toy_server.post("/tts", json={"input": "Hi.", "voice": "af_bella+af_sarah"})
    assert answer.status_code == 404
    assert "voices are not mixed; there are: toy" in shape(answer)["message"]


def test_fields_of_another_server_that_change_nothing_are_named(toy_server) -> None:
    fields = {"task_type": "CustomVoice", "max_new_tokens": 2048, "initial_codec_chunk_frames": 4}
    more = {"non_streaming_mode": False, "max_duration_s": 0.2}
    answer = toy_server.post("/tts", json={"input": "Hi."} | fields | more)
    assert answer.status_code == 200
    named = {*fields, "non_streaming_mode"}
    assert {*answer.headers["x-ignored"].replace(",", " ").split()} == named


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
    assert json.loads(cleaned_body(raw, TtsRequest)[0]) == {
        "input": "a",
        "seed": 2**63 - 1,
        "temperature": 1e-5,
    }
    untouched = b'{"input":"null"}'
    assert cleaned_body(untouched, TtsRequest)[0] is untouched
