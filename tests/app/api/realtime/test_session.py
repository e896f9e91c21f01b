"""Text in pieces in, sound out, over a WebSocket."""

import time
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from websockets.exceptions import ConnectionClosed

from app.api.realtime.valle import PROTOCOL
from app.main import create_app
from app.settings import Settings
from tests.app.tools.live_client import LiveClient, keep_on, live, serving
from tests.app.tools.serving import until
from tests.fakes import FakeBackend, fake_engine

KNOBS = {"seed": 3, "max_duration_s": 1.5, "pause_s": 0.1}


@pytest.fixture
def fake(streaming) -> Iterator[LiveClient]:
    with live(streaming) as session:
        yield session


def test_a_flush_is_a_border_that_the_packets_are_not(toy_server) -> None:
    with live(toy_server) as session:
        session.say("Hello", " there", **KNOBS)
        whole, session.sound = session.sound, b""
        session.create(**KNOBS)
        session.text("Hello")
        session.flush()
        session.text(" there")
        session.end()
        session.until("response.done")
        assert session.sound != whole


def test_every_message_in_its_order(toy_server) -> None:
    with live(toy_server) as session:
        done = session.say("One. Two.", **KNOBS | {"max_duration_s": 0.6}, trace=True)
        kinds = [message["type"] for message in session.seen]
        assert kinds[:2] == ["session.created", "response.created"]
        assert kinds.count("response.started") == 1
        assert kinds.index("response.started") < kinds.index("response.trace")
        assert kinds[-1] == "response.done"
        acks = [one["sequence"] for one in session.seen if one["type"] == "input_text.ack"]
        assert acks == [0, 1]
        (started,) = (one for one in session.seen if one["type"] == "response.started")
        assert (started["seed"], started["voice"], started["language"]) == (3, "toy", "en")
        names = {one["response_id"] for one in session.seen[1:]}
        assert names == {done["response_id"]}
        usage = done["usage"]
        assert usage["input_tokens"] > 0
        assert usage["output_tokens"] == 45
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        assert done["first_audio_s"] > 0
        assert done["timings"]["total_s"] >= done["timings"]["ar_s"] > 0


def test_speech_starts_before_the_text_ends(fake: LiveClient) -> None:
    fake.create()
    fake.text("Hello. A")
    fake.until_sound()
    fake.text("nd on.")
    fake.end()
    done = fake.until("response.done")
    assert done["finish_reason"] == "stop"
    assert done["usage"]["output_tokens"] == len("Hello.And on.")


def test_sentences_of_one_response_share_its_seed(toy_server) -> None:
    with live(toy_server) as session:
        session.say("One. Two. Three.", max_duration_s=0.9)
        drawn, session.sound = session.sound, b""
        seed = session.seen[-1]["seed"]
        session.say("One. Two. Three.", max_duration_s=0.9, seed=seed)
        assert session.sound == drawn


REFUSED = [
    ("{", None, "json_invalid"),
    ("[]", None, "dict_type"),
    ("{}", "type", "union_tag_not_found"),
    ('{"type": "nothing"}', "type", "union_tag_invalid"),
    ('{"type": "response.create", "temprature": 1}', "temprature", "extra_forbidden"),
    ('{"type": "response.create", "top_p": 2}', "top_p", "less_than_equal"),
    ('{"type": "response.create", "top_p": "one"}', "top_p", "float_type"),
    ('{"type": "response.create", "input": "Hi."}', "input", "extra_forbidden"),
    ('{"type": "response.create", "model": "other"}', "model", "model_not_found"),
    ('{"type": "input_text.end", "sequence": 0}', "type", "no_response"),
    ('{"type": "input_text.end"}', "sequence", "missing"),
    ('{"type": "response.cancel"}', "type", "no_response"),
    (b"\x00", None, "not_text"),
]


def test_what_is_not_understood_is_refused_by_name_and_the_session_goes_on(fake) -> None:
    for raw, param, code in REFUSED:
        fake.connection.send(raw)
        error = fake.until("error")["error"]
        assert (error["param"], error["code"]) == (param, code), raw
        assert error["type"] == "invalid_request_error"
    fake.connection.send('{"type": "response.create", "temprature": 1}')
    assert "did you mean temperature?" in fake.until("error")["error"]["message"]
    assert fake.say("Hello.")["finish_reason"] == "stop"


def test_messages_out_of_order_are_refused_and_change_nothing(fake) -> None:
    fake.create()
    fake.text("One")
    for wrong in (0, 2, 99):
        fake.send("input_text.append", sequence=wrong, text="no")
        refused = fake.until("error")
        assert (refused["sequence"], refused["error"]["param"]) == (wrong, "sequence")
    fake.end()
    assert fake.until("response.done")["usage"]["output_tokens"] == len("One")


def test_one_response_at_a_time(fake) -> None:
    name = fake.create()
    fake.send("response.create")
    refused = fake.until("error")
    assert (refused["response_id"], refused["error"]["code"]) == (name, "response_open")
    fake.text("Hi.")
    fake.end()
    fake.until("response.done")
    assert fake.create() != name


def test_a_text_is_as_long_as_one_of_a_request_may_be() -> None:
    with serving(FakeBackend(), max_text_chars=10) as (client, _), live(client) as session:
        session.create()
        session.text("123456")
        session.text("78901")
        refused = session.until("error")
        assert (refused["error"]["param"], refused["sequence"]) == ("text", 1)
        session.send("input_text.end", sequence=1)
        assert session.until("response.done")["usage"]["output_tokens"] == 6


def test_a_message_is_no_larger_than_a_body_may_be() -> None:
    with serving(FakeBackend(), max_body_bytes=1024) as (client, _), live(client) as session:
        session.create()
        session.text("é" * 600)
        with pytest.raises(ConnectionClosed) as closed:
            session.until("response.done")
        assert closed.value.sent is not None
        assert closed.value.sent.code == 1009


def test_a_message_that_another_host_lets_through_is_no_larger_either() -> None:
    app = create_app(Settings(max_body_bytes=1024), fake_engine())
    path = "/v1/audio/speech/stream"
    host = {"host": "localhost"}
    with TestClient(app) as client:
        until(lambda: client.get("/ready", headers=host).status_code == 200)
        with client.websocket_connect(path, [PROTOCOL], headers=host) as session:
            session.send_json({"type": "input_text.append", "text": "é" * 600})
            while (message := session.receive_json())["type"] != "error":
                pass
            assert message["error"]["code"] == "body_too_large"


@pytest.mark.parametrize("text", ["", "   "])
def test_a_response_without_text_is_an_error_and_done(fake, text) -> None:
    done = fake.say(text)
    assert (done["finish_reason"], done["audio_bytes"]) == ("error", 0)
    assert fake.seen[-2]["error"]["param"] == "text"


def test_a_session_where_nothing_happens_is_closed(impatient) -> None:
    with live(impatient) as session:
        session.create()
        assert session.until("error")["error"]["code"] == "idle_timeout"
        with pytest.raises(ConnectionClosed):
            session.next()
        assert session.connection.close_code == 1000


@pytest.mark.slow
def test_a_session_that_is_spoken_to_is_not_idle() -> None:
    speaking = FakeBackend(chunk_s=0.1, block={"wait": "ar"})
    with serving(speaking, idle_timeout_s=0.2) as (client, _), live(client) as session:
        session.create()
        session.text("wait")
        session.end()
        time.sleep(0.6)
        speaking.let(4)
        assert session.until("response.done")["finish_reason"] == "stop"


CANCEL = '{"type": "response.cancel"}'


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (False, ["{}"]),
        (False, [CANCEL]),
        (False, ["no JSON"]),
        (False, [b"bytes"]),
        (False, ['{"type": "x"}']),
        (False, ['{"type": "response.create"}', CANCEL]),
        (True, [" "]),
    ],
)
def test_what_is_no_text_to_speak_keeps_no_session_open(impatient, begin, said) -> None:
    with live(impatient) as session:
        if begin:
            session.create()
        send = session.text if begin else session.connection.send
        with pytest.raises(ConnectionClosed):
            keep_on(lambda: [send(one) for one in said])
        assert session.connection.close_code == 1000


@pytest.mark.parametrize(("form", "rate", "frame"), [("pcm", 16000, 2), ("ulaw", None, 1)])
def test_a_response_has_the_format_that_it_asks_for(fake, form, rate, frame) -> None:
    fake.create(response_format=form, sample_rate=rate)
    audio = fake.seen[-1]["audio"]
    assert audio["sample_rate_hz"] == (rate or 8000)
    fake.text("Hello there.")
    fake.end()
    done = fake.until("response.done")
    assert len(fake.sound) == done["audio_bytes"]
    assert done["audio_s"] == pytest.approx(done["audio_bytes"] / frame / audio["sample_rate_hz"])


@pytest.mark.slow
def test_a_text_that_grows_keeps_its_session() -> None:
    with serving(FakeBackend(), idle_timeout_s=2.0) as (client, _), live(client) as session:
        session.create()
        for _ in range(10):
            session.text("a")
            time.sleep(0.25)
        session.end()
        assert session.until("response.done")["finish_reason"] == "stop"
