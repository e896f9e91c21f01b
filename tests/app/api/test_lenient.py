"""Bodies whose meaning is certain although strict JSON or a schema would refuse them."""

import codecs
import json
from typing import Any

import httpx
import pytest

from tests.app.tools.answers import asked, shape
from tests.app.tools.live_client import live

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("field", "sent", "read"),
    [
        ("seed", 450.0, 450),
        ("seed", "450", 450),
        ("seed", "450.0", 450),
        ("seed", "1e3", 1000),
        ("seed", str(2**63 - 1), 2**63 - 1),
        ("temperature", "0.8", 0.8),
        ("temperature", "1", 1.0),
        ("top_k", 5.0, 5),
        ("mirostat_mode", "2", 2),
        ("mirostat_mode", 2.0, 2),
        ("logit_bias", {"5": "-1.5"}, {"5": -1.5}),
        ("ban_tokens", ["5", 6.0, 7, "8"], [5, 6, 7, 8]),
        (
            "ban_sequences",
            [{"codes": ["1", 2.0], "strength": "5"}, {"codes": ["3"]}],
            [{"codes": [1, 2], "strength": 5.0}, {"codes": [3], "strength": 100.0}],
        ),
        ("nar_level_temperatures", ["0.5", 1], [0.5, 1.0]),
    ],
)
def test_a_number_in_a_string_or_a_whole_float_is_the_number(
    client: httpx.Client, field: str, sent: Any, read: Any
) -> None:
    report, _ = asked(client, {"input": "Hi.", field: sent})
    assert report["request"]["params"][field] == read


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        *[("temperature", text) for text in ("warm", "", " 1", "1 ", "+1", ".5", "0x1", "1,5")],
        *[("temperature", text) for text in ("NaN", "Infinity", "1e999", "٣", "1" * 41, True)],
        *[("top_k", sent) for sent in (5.5, "5.5", True, "five")],
        ("seed", 1e300),
        ("seed", str(2**63)),
        ("sample_rate", "24001"),
        ("trace", "true"),
        ("ban_tokens", ["5", "a"]),
    ],
)
def test_what_is_no_such_number_is_refused_by_name(
    client: httpx.Client, field: str, sent: Any
) -> None:
    answer = client.post("/tts", json={"input": "Hi.", field: sent})
    assert answer.status_code == 422
    assert (shape(answer)["param"] or "").startswith(field)


def test_a_problem_beside_a_number_in_a_string_is_told_alone(client: httpx.Client) -> None:
    answer = client.post("/tts", json={"input": "Hi.", "speed": "1.0", "temprature": 1})
    error = shape(answer)
    assert error["param"] == "temprature"
    assert "speed" not in error["message"]


def test_a_message_of_a_socket_may_have_numbers_in_strings(client: httpx.Client) -> None:
    with live(client) as session:
        session.send("response.create", speed="1.5", seed=5.0)
        session.until("response.created")
        session.send("input_text.append", sequence="0", text="Hello. ")
        assert session.until("input_text.ack")["sequence"] == 0
        session.send("input_text.end", sequence=1.0)
        assert session.until("response.done")["seed"] == 5


@pytest.mark.parametrize("path", ["/tts", "/v1/audio/speech", "/v1/audio/phonemes"])
def test_a_byte_order_mark_of_utf_8_is_no_part_of_a_body(toy_server, path: str) -> None:
    body = codecs.BOM_UTF8 + json.dumps({"input": "Café."}, ensure_ascii=False).encode()
    assert toy_server.post(path, content=body, headers=JSON).status_code == 200


@pytest.mark.parametrize("path", ["/tts", "/v1/audio/phonemes", "/v1/text-to-speech/toy"])
@pytest.mark.parametrize(
    "encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"]
)
@pytest.mark.parametrize("declared", [True, False])
def test_a_body_in_another_encoding_is_told_which_it_must_be(
    client: httpx.Client, path: str, encoding: str, declared: bool
) -> None:
    body = json.dumps({"input": "Café.", "text": "Café."}, ensure_ascii=False).encode(encoding)
    kind = f"application/json; charset={encoding}" if declared else "application/json"
    answer = client.post(path, content=body, headers={"content-type": kind})
    assert answer.status_code == 422
    assert shape(answer)["message"] == "the body must be UTF-8"


@pytest.mark.parametrize("path", ["/tts", "/v1/audio/speech", "/dev/captioned_speech"])
def test_ogg_is_a_name_of_opus(client: httpx.Client, path: str) -> None:
    answers = [
        client.post(path, json={"input": "Hi.", "seed": 1, "stream": False, "response_format": one})
        for one in ("ogg", "opus")
    ]
    assert {answer.status_code for answer in answers} == {200}
    assert answers[0].headers["content-type"] == answers[1].headers["content-type"]
    assert min(len(answer.content) for answer in answers) > 100


def test_a_recent_speech_is_played_as_ogg(client: httpx.Client) -> None:
    name = client.post("/tts", json={"input": "Hi."}).headers["x-request-id"]
    path = f"/v1/audio/speech/{name}/audio"
    answer = client.get(path, params={"response_format": "ogg"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/ogg")
