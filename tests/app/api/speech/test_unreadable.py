"""What no voice reads, at every door: left out and told, or refused."""

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from app.main import create_app
from app.settings import Settings
from tests.app.tools.answers import events_of, report_of
from tests.app.tools.live_client import live, url_of
from tests.app.tools.serving import served

SHORT: dict[str, Any] = {"seed": 3, "max_duration_s": 1, "nar_levels": 0}
CAT = "The word is 猫. Hi there 😊."
SAID = [
    "left out, as this voice reads English only: 猫 (CJK)",
    "left out, as there are no words for it: 😊 (smiling face with smiling eyes)",
]


@pytest.fixture(scope="module")
def strict(toy, tmp_path_factory) -> Iterator[httpx.Client]:
    """A client of a server that refuses what it does not read."""
    voices = str(tmp_path_factory.mktemp("voices"))
    settings = Settings(model=str(toy), device="cpu", voices=voices, unreadable="refuse")
    with served(create_app(settings)) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_names_what_was_left_out_and_its_report_too(toy_server, stream) -> None:
    answer = toy_server.post("/tts", json=SHORT | {"input": CAT, "stream": stream})
    assert answer.status_code == 200, answer.text
    assert json.loads(answer.headers["x-left-out"]) == ["猫", "😊"]
    warning = answer.headers["x-warning"]
    assert warning.encode().decode("unicode_escape") == "; ".join(SAID)
    report = report_of(toy_server, answer)
    assert (report["warnings"], report["left_out"]) == (SAID, ["猫", "😊"])
    assert [one["text"] for one in report["utterances"]][:1] == ["The word is."]


@pytest.mark.parametrize("text", ["Hi \u0904\0.", "Hi \u0904\x7f\x9f.", "Hi [la\x1bughs]."])
def test_a_warning_has_no_control_characters(toy_server, text) -> None:
    answer = toy_server.post("/tts", json=SHORT | {"input": text})
    assert answer.status_code == 200, answer.text
    (warning,) = report_of(toy_server, answer)["warnings"]
    assert warning.isprintable()
    assert answer.headers["x-warning"].encode().decode("unicode_escape") == warning


def test_events_and_readings_name_it(toy_server) -> None:
    answer = toy_server.post("/tts", json=SHORT | {"input": CAT, "stream_format": "sse"})
    *_, done = events_of(answer)
    assert (done["warnings"], done["left_out"]) == (SAID, ["猫", "😊"])
    read = toy_server.post("/v1/audio/phonemes", json={"input": CAT}).json()
    assert (read["warnings"], read["left_out"]) == (SAID, ["猫", "😊"])


@pytest.mark.slow
def test_a_request_or_the_operator_may_refuse_it(toy_server, strict) -> None:
    asked = SHORT | {"input": CAT}
    for client, body in ((toy_server, asked | {"unreadable": "refuse"}), (strict, asked)):
        answer = client.post("/tts", json=body)
        assert answer.status_code == 422
        error = answer.json()["error"]
        assert error["param"] == "input"
        assert error["message"].startswith("this voice reads English only, not 猫 (CJK)")
    assert strict.post("/tts", json=asked | {"unreadable": "skip"}).status_code == 200
    assert toy_server.post("/tts", json=asked | {"unreadable": "read"}).status_code == 422


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", ["猫", "😊", "Привет, мир!"])
def test_a_whole_request_without_anything_to_speak_is_refused(toy_server, text, stream) -> None:
    answer = toy_server.post("/tts", json=SHORT | {"input": text, "stream": stream})
    assert answer.status_code == 422
    reads = "this voice reads English only, not" if text != "😊" else "the text has nothing to"
    assert answer.json()["error"]["message"].startswith(reads)


@pytest.mark.slow
def test_a_live_text_goes_on_past_a_piece_without_a_word(toy_server) -> None:
    longer = SHORT | {"max_duration_s": 8}
    with live(toy_server) as session:
        said = session.say("Hi. ", "猫が好き。 ", "You. ", "😊", trace=True, **longer)
        traces = [one["utterance"] for one in session.seen if one["type"] == "response.trace"]
        whole = session.say("Hi. You.", trace=True, **longer)
    assert [one["text"] for one in said["utterances"]] == ["Hi.", "You."]
    assert said["left_out"] == ["猫が好き", "😊"]
    assert said["warnings"] == [SAID[0].replace("猫", "猫が好き"), SAID[1]]
    assert said["codes_sha256"] == whole["codes_sha256"]
    assert said["audio_bytes"] == whole["audio_bytes"]
    assert traces == [0, 1]
    assert whole["warnings"] == []


@pytest.mark.parametrize("text", ["猫。", "😊", "---"])
def test_a_live_text_without_a_word_is_no_sound_and_a_warning(toy_server, text) -> None:
    with live(toy_server) as session:
        said = session.say(text, **SHORT)
        assert (said["finish_reason"], said["audio_bytes"], said["utterances"]) == ("stop", 0, [])
        *_, last = said["warnings"]
        assert last.startswith("nothing is spoken")
        assert session.say("Hi.", **SHORT)["audio_bytes"] > 0


def test_a_live_text_may_be_refused(toy_server) -> None:
    with live(toy_server) as session:
        assert session.say("猫.", unreadable="refuse", **SHORT)["finish_reason"] == "error"


@pytest.mark.slow
def test_elevenlabs_socket_speaks_the_rest_and_tells_at_the_end(toy_server) -> None:
    path = "/v1/text-to-speech/toy/stream-input?output_format=pcm_24000"
    for packets, heard in ((["The word is 猫. ", "Hi."], True), (["猫。"], False), (["😊"], False)):
        with connect(url_of(toy_server, path), proxy=None) as socket:
            for text in (" ", *packets, ""):
                socket.send(json.dumps({"text": text}))
            messages = [json.loads(one) for one in socket]
        *sounds, final = messages
        assert final["isFinal"], messages
        assert any(b64decode(one["audio"]) for one in sounds) == heard
        assert final["warnings"]


@pytest.mark.slow
def test_an_elevenlabs_context_goes_on_after_what_cannot_be_read(toy_server) -> None:
    path = "/v1/text-to-speech/toy/multi-stream-input?output_format=pcm_24000&auto_mode=true"
    with connect(url_of(toy_server, path), proxy=None) as socket:
        for text in ("The word for cat is 猫. ", "It is easy. "):
            socket.send(json.dumps({"text": text, "context_id": "one"}))
        socket.send(json.dumps({"context_id": "one", "flush": True}))
        socket.send(json.dumps({"context_id": "one", "close_context": True}))
        messages: list[dict[str, Any]] = []
        while not messages or not messages[-1].get("isFinal"):
            messages.append(json.loads(socket.recv(timeout=60)))
    assert messages[-1]["warnings"] == SAID[:1]
    assert sum(len(b64decode(one["audio"])) for one in messages[:-1]) > 1000
