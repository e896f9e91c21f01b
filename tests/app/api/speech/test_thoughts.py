"""`thoughts` reaches the text that is read and spoken, whole and while it is written."""

from typing import Any

from tests.app.tools.answers import report_of
from tests.app.tools.live_client import live

SHORT: dict[str, Any] = {"seed": 3, "max_duration_s": 1, "nar_levels": 0}
TEXT = "<think>I greet.</think>Hello!"


def test_a_request_chooses_whether_thoughts_are_read(toy_server) -> None:
    for asked, read in (({}, ["Hello!"]), ({"thoughts": "speak"}, ["I greet.", "Hello!"])):
        answer = toy_server.post("/v1/audio/phonemes", json={"input": TEXT, **asked})
        assert [one["text"] for one in answer.json()["utterances"]] == read
        spoken = toy_server.post("/tts", json=SHORT | {"input": TEXT, **asked})
        report = report_of(toy_server, spoken)
        assert [one["text"] for one in report["utterances"]][:1] == read[:1]
    assert toy_server.post("/tts", json={"input": TEXT, "thoughts": "no"}).status_code == 422


def test_a_session_chooses_it_too(toy_server) -> None:
    with live(toy_server) as session:
        assert session.say(TEXT, **SHORT)["finish_reason"] in {"length", "stop"}
