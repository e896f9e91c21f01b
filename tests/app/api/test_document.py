"""The OpenAPI document, which clients are made from."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from app.main import create_app
from app.settings import Settings
from tests.fakes import fake_engine

SEED_MAX = 2**63 - 1
KNOBS = [
    ("paths", path, "post", "requestBody", "content", "application/json", "schema")
    for path in ("/tts", "/v1/audio/speech")
] + [("components", "schemas", name) for name in ("SamplingParams", "SpeechRequest")]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(create_app(Settings(), fake_engine()).openapi()))
    return read


def objects(node: Any) -> Iterator[dict[str, Any]]:
    """Give every object of a document, itself among them."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for inner in node:
            yield from objects(inner)


@pytest.mark.slow
def test_every_reference_leads_somewhere(document) -> None:
    found = {one["$ref"] for one in objects(document) if isinstance(one.get("$ref"), str)}
    assert found
    for reference in found:
        place, *path = reference.split("/")
        assert place == "#", reference
        node = document
        for name in path:
            assert name in node, reference
            node = node[name]


@pytest.mark.parametrize("place", KNOBS)
def test_the_bounds_of_a_seed_are_exact(document, place) -> None:
    for name in place:
        document = document[name]
    seed = document["properties"]["seed"]["anyOf"][0]
    assert (seed["minimum"], seed["maximum"]) == (0, SEED_MAX)


def test_an_integer_has_integers_for_bounds(document) -> None:
    bounds = [
        schema[name]
        for schema in objects(document)
        if schema.get("type") == "integer"
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        if name in schema
    ]
    assert len(bounds) > 50
    assert {type(bound) for bound in bounds} == {int}


def test_a_bound_of_a_number_stays_what_it_is(document) -> None:
    for name in KNOBS[0]:
        document = document[name]
    for field, bounds in (("speed", (0.25, 4.0)), ("top_p", (0, 1))):
        shown = document["properties"][field]
        assert (shown["minimum"], shown["maximum"]) == bounds
        assert shown["description"]
    assert document["required"] == ["input"]
    assert document["additionalProperties"] is False


def test_the_greatest_seed_is_taken(toy_server) -> None:
    body = {"input": "Hi.", "seed": SEED_MAX, "max_duration_s": 0.2}
    assert toy_server.post("/tts", json=body).status_code == 200


def test_the_document_is_made_once(document) -> None:
    app = create_app(Settings(), fake_engine())
    assert app.openapi() is app.openapi()


def test_operations_have_the_names_that_clients_were_made_with(document) -> None:
    """A generated client calls them so: a name that changes breaks it."""
    found = {
        f"{method} {path}": operation["operationId"]
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    named = {
        "post /v1/audio/speech": "create_speech",
        "get /v1/presets": "list_presets",
        "get /v1/audio/speech/{id}/codes": "get_speech_codes",
        "post /v1/audio/codes": "encode_recording",
        "post /v1/audio/speech/{id}/audio": "decode_codes",
        "post /v1/text-to-speech/{voice_id}": "elevenlabs_speech",
        "post /v1/text-to-speech/{voice_id}/stream": "elevenlabs_stream",
        "post /v1/text-to-speech/{voice_id}/with-timestamps": "elevenlabs_timestamps",
        "post /v1/text-to-speech/{voice_id}/stream/with-timestamps": "elevenlabs_stream_timestamps",
        "post /dev/captioned_speech": "captioned_speech",
        "post /dev/dialogue": "dialogue",
        "post /dev/generate_from_phonemes": "speak_phonemes",
        "post /dev/phonemize": "phonemize",
        "post /v1/audio/phonemes": "read_text",
        "post /tts": "create_tts",
        "get /v1/audio/speech/{id}": "get_speech",
        "get /v1/audio/speech/{id}/audio": "get_speech_audio",
        "get /v1/audio/voices": "list_voices",
        "post /v1/audio/voices": "create_voice",
        "get /v1/audio/voices/{id}": "get_voice",
        "get /v1/audio/voices/{id}/audio": "get_voice_audio",
        "delete /v1/audio/voices/{id}": "delete_voice",
        "get /v1/models": "list_models",
        "get /v1/models/{id}": "get_model",
        "get /v1/audio/models": "list_audio_models",
        "get /health": "get_health",
        "get /ready": "get_ready",
        "get /metrics": "get_metrics",
    }
    assert found | named == found
    assert len(set(found.values())) == len(found)
    assert all(name.isidentifier() and "__" not in name for name in found.values())


def test_a_speech_is_described_as_a_report_or_as_a_request(document) -> None:
    answer = document["paths"]["/v1/audio/speech/{id}"]["get"]["responses"]["200"]
    kinds = answer["content"]["application/json"]["schema"]["anyOf"]
    names = {one["$ref"].rpartition("/")[2] for one in kinds}
    assert names == {"SpeechReport", "SpeechRequest"}
