"""What the OpenAPI document excludes is what the service refuses."""

from typing import Any

import httpx
import pytest
from jsonschema_rs import Draft202012Validator

PATHS = ("/tts", "/v1/audio/speech", "/dev/captioned_speech")
CODES = {"response_format": "codes"}


@pytest.fixture(scope="module")
def document(toy_server: httpx.Client) -> dict[str, Any]:
    read: dict[str, Any] = toy_server.get("/openapi.json").json()
    return read


def allowed(document: dict[str, Any], path: str, body: dict[str, Any]) -> bool:
    content = document["paths"][path]["post"]["requestBody"]["content"]
    schema = content["application/json"]["schema"] | {"components": document["components"]}
    return bool(Draft202012Validator(schema).is_valid(body))


@pytest.mark.parametrize(
    ("fields", "is_taken"),
    [
        ({}, True),
        (CODES, True),
        (CODES | {"loudness_lufs": -20.0}, False),
        (CODES | {"loudness_lufs": None}, True),
        (CODES | {"speed": 2}, False),
        (CODES | {"speed": 1}, True),
        ({"response_format": "opus", "sample_rate": 44100}, False),
        ({"response_format": "ogg", "sample_rate": 22050}, False),
        ({"response_format": "ogg", "sample_rate": 48000}, True),
        ({"response_format": "mp3", "sample_rate": 44100}, True),
        ({"stream_format": "sse", "stream": False}, False),
        ({"stream_format": "sse", "stream": True}, True),
        ({"stream": False}, True),
        ({"mirostat_mode": 2, "top_k": 5}, False),
        ({"mirostat_mode": 2, "top_k": -1}, True),
        ({"mirostat_mode": 2, "mirostat_tau": 0, "top_k": 5}, True),
        ({"sampler_order": "hf", "dry_multiplier": 1}, False),
        ({"sampler_order": ["dry"], "dry_multiplier": 1}, True),
        ({"sampler_order": ["dry"], "temperature": 0.5}, False),
        ({"temperature": 0, "best_of": 2}, False),
        ({"temperature": 0.5, "min_temperature": 0.8}, True),
        ({"temperature": 0, "min_temperature": 0.5}, False),
        ({"xtc_probability": 0.5, "xtc_threshold": 0.6, "beam_width": 2}, True),
        ({"xtc_probability": 0.5, "beam_width": 2}, False),
        ({"level_0": "masked"}, False),
        ({"level_0": "auto", "nar_len_steps": 9}, True),
        ({"nar_len_steps": 9}, True),
        ({"nar_lookahead_frames": 3}, True),
        ({"timestamps": "word"}, False),
        ({"logit_bias": {"3": 1.0}}, True),
        ({"logit_bias": {"4000": 1.0}}, False),
        ({"logit_bias": {"x": 1.0}}, False),
        ({"dry_sequence_breakers": [-1]}, False),
        ({"nar_level_temperatures": [-2.0]}, False),
        ({"preset": "nobody"}, False),
        ({"preset": "stable"}, True),
        ({"language": "en-GB"}, True),
        ({"language": "Klingon"}, False),
        ({"dictionaries": ["nobody"]}, False),
        ({"input": "a" * 5000}, False),
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_the_document_allows_what_is_taken_and_nothing_else(
    toy_server: httpx.Client, document, path: str, fields: dict[str, Any], is_taken: bool
) -> None:
    body = {"input": "Hi.", "max_duration_s": 0.1} | fields
    if path == "/dev/captioned_speech":
        if "timestamps" in fields:
            pytest.skip("it asks for them by another name")
        if "codes" in fields.values() or "sse" in fields.values():
            is_taken = False
        body |= {"return_timestamps": False}
    assert (toy_server.post(path, json=body).status_code == 200) == is_taken
    assert allowed(document, path, body) == is_taken or None in fields.values()
