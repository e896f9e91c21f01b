"""Names of voices and models, presets, and fields that do nothing."""

import logging
from collections.abc import Iterator

import httpx
import pytest
from pydantic import ValidationError

from app.main import create_app
from app.settings import Settings
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import PRESETS
from tests.app.tools.live_client import live
from tests.app.tools.serving import served

HI = {"input": "Hi.", "seed": 3, "max_duration_s": 1}


@pytest.fixture(scope="module")
def named(toy, tmp_path_factory) -> Iterator[httpx.Client]:
    """A client of a server with further names, which refuses instructions."""
    settings = Settings(
        model=str(toy),
        device="cpu",
        voices=str(tmp_path_factory.mktemp("voices")),
        aliases="AF_Heart=TOY, kokoro=model, first=default,lost=nobody",
        instructions="refuse",
    )
    with served(create_app(settings)) as client:
        yield client


@pytest.mark.parametrize("voice", ["af_heart", "AF_HEART", "first", "toy", "TOY", "Alloy"])
@pytest.mark.parametrize("model", ["kokoro", "Kokoro", "TTS-1", "GPT-4o-mini-tts-2025-12-15"])
def test_names_are_found_in_any_case(named, voice, model) -> None:
    answer = named.post("/tts", json=HI | {"voice": voice, "model": model})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-voice"] == "toy"


@pytest.mark.parametrize(
    "fields", [{"voice": "lost"}, {"voice": "kokoro"}, {"model": "af_heart"}, {"model": "model"}]
)
def test_a_name_of_something_else_is_not_found(named, fields) -> None:
    answer = named.post("/tts", json=HI | fields)
    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == next(iter(fields))


def test_further_names_are_listed_with_what_they_mean(named) -> None:
    voices = {one["id"]: one for one in named.get("/v1/audio/voices").json()["voices"]}
    assert voices["af_heart"]["alias_of"] == voices["first"]["alias_of"] == "toy"
    assert "lost" not in voices
    models = {one["id"]: one["alias_of"] for one in named.get("/v1/models").json()["data"]}
    loaded = next(iter(models))
    assert models[loaded] is None
    assert models["kokoro"] == models["tts-1"] == loaded
    assert named.get("/v1/models/KOKORO").json()["alias_of"] == loaded


@pytest.mark.parametrize("aliases", ["kokoro", "=heart", "a=", "a=b,A=c"])
def test_malformed_aliases_stop_the_start(aliases) -> None:
    with pytest.raises(ValidationError, match="TTS_ALIASES"):
        Settings(aliases=aliases)


def test_instructions_are_refused_where_the_operator_says_so(named) -> None:
    answer = named.post("/tts", json=HI | {"instructions": "Sing."})
    assert answer.status_code == 422
    assert answer.json()["error"]["param"] == "instructions"
    assert named.post("/tts", json=HI | {"instructions": "  "}).status_code == 200
    with live(named) as session:
        session.send("response.create", instructions="Sing.")
        assert session.until("error")["error"]["param"] == "instructions"


@pytest.mark.parametrize("stream", [False, True])
def test_instructions_are_ignored_by_default_and_the_answer_and_the_log_say_so(
    toy_server, caplog, stream
) -> None:
    with caplog.at_level(logging.INFO, "app.api.requests"):
        answer = toy_server.post("/tts", json=HI | {"instructions": "Sing.", "stream": stream})
    assert answer.status_code == 200
    assert answer.headers["x-ignored"] == "instructions"
    assert "ignored instructions" in caplog.text
    assert "Sing." not in caplog.text
    plain = toy_server.post("/tts", json=HI | {"stream": stream})
    assert "x-ignored" not in plain.headers
    assert plain.content == answer.content


def test_presets_are_listed_with_every_knob_as_the_model_would_use_it(toy_server) -> None:
    presets = {one["id"]: one for one in toy_server.get("/v1/presets").json()["presets"]}
    assert list(presets) == ["auto", *PRESETS]
    assert presets["auto"]["alias_of"] == "default"
    for name, preset in presets.items():
        assert preset["knobs"].keys() == SamplingParams.model_fields.keys()
        assert preset["knobs"]["seed"] is None
        for knob, value in PRESETS.get(name, {}).items():
            assert preset["knobs"][knob] == ("ar" if knob == "level_0" else value)
    assert presets["greedy"]["sets"] == {"temperature": 0.0}


@pytest.mark.slow
def test_a_preset_s_knobs_give_what_its_name_gives(toy_server) -> None:
    presets = {one["id"]: one for one in toy_server.get("/v1/presets").json()["presets"]}
    for name in ("auto", "stable", "llama_cpp"):
        said = toy_server.post("/tts", json=HI | {"preset": name})
        same = toy_server.post("/tts", json=HI | presets[name]["sets"] | {"preset": "default"})
        assert same.status_code == 200, same.text
        assert same.headers["x-codes-sha256"] == said.headers["x-codes-sha256"]


def test_kokoros_names_are_known_where_the_model_has_such_voices(named, toy_server) -> None:
    models = [one["id"] for one in toy_server.get("/v1/models").json()["data"]]
    assert "kokoro" in models
    assert toy_server.post("/tts", json=HI | {"model": "kokoro"}).status_code == 200
    assert toy_server.post("/tts", json=HI | {"voice": "af_bella"}).status_code == 404
    assert named.post("/tts", json=HI | {"voice": "af_heart"}).status_code == 200


def test_fields_of_other_servers_are_ignored_by_name(toy_server) -> None:
    plain = toy_server.post("/v1/audio/speech", json=HI | {"response_format": "pcm"})
    sent = {"user": "me", "non_streaming_mode": False, "metadata": {"a": [1]}, "language": None}
    answer = toy_server.post("/v1/audio/speech", json=HI | sent | {"response_format": "pcm"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-ignored"] == "metadata, non_streaming_mode, user"
    assert answer.content == plain.content
    assert "x-ignored" not in plain.headers
    with live(toy_server) as session:
        session.create(user="me", instructions="Sing.")
        assert session.seen[-1]["ignored"] == ["user", "instructions"]


@pytest.mark.slow
@pytest.mark.parametrize("language", ["English", "en_US", "EN", "Auto", ""])
def test_a_language_is_taken_as_clients_send_it_at_every_door(named, language) -> None:
    answer = named.post("/tts", json=HI | {"language": language})
    assert answer.status_code == 200, answer.text
    report = named.get(f"/v1/audio/speech/{answer.headers['x-request-id']}").json()
    assert report["request"]["language"] == "en"
    read = named.post("/v1/audio/phonemes", json={"input": "Hi.", "language": language})
    assert read.json()["language"] == "en"
    body = {"text": "Hi.", "language_code": language}
    assert named.post("/v1/text-to-speech/toy", json=body).status_code == 200
    with live(named) as session:
        assert session.say("Hi.", language=language, max_duration_s=1)["finish_reason"] != "error"
        (started,) = (one for one in session.seen if one["type"] == "response.started")
        assert started["language"] == "en"


@pytest.mark.parametrize("language", ["German", "de_DE", "Old English"])
def test_a_language_that_the_model_does_not_speak_is_refused_as_it_was_sent(
    named, language
) -> None:
    error = named.post("/tts", json=HI | {"language": language}).json()["error"]
    assert error["param"] == "language"
    assert error["message"] == f"the model does not speak {language!r}, only en"
