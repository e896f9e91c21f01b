"""One line a request, which tells no text and which nobody can forge."""

import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from app import logs
from app.main import create_app
from app.settings import Settings
from tests.app.tools.answers import raw
from tests.app.tools.live_client import live
from tests.app.tools.serving import served, until
from tests.fakes import FakeBackend, fake_engine

KEY = "alice-0123456789"
SECRET = "the moon is made of cheese"
BEARER = {"authorization": f"Bearer {KEY}"}
FORGED = "x\r\n2026-01-01 00:00:00,000 CRITICAL app [-]: forged"
BEGINS = {
    "text": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ [A-Z]+ \S+ \[\S+\]: |    ",
    "json": r"\{.*\}$",
}


class Log:
    """What was written so far."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.served_from = 0  # of the text: other servers of this process may have been late

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def access(self) -> list[dict[str, Any]]:
        """The access lines of a JSON log, but for those of the test's own waiting."""
        told = [json.loads(line) for line in self.text[self.served_from :].splitlines()]
        return [
            one
            for one in told
            if one["logger"] == "app.api.gate.access_log" and one["path"] != "/ready"
        ]


@contextmanager
def logged(
    form: logs.LogFormat = "json", speaking: FakeBackend | None = None, **settings: Any
) -> Iterator[tuple[httpx.Client, Log]]:
    """Serve a fake; give its log as an operator sees it, from debug upwards."""
    log, root = Log(), logging.getLogger()
    speaking = speaking or FakeBackend(fail_at={"break": "ar", "unreadable": "text"})
    handler, level = logs.handler(form, log.stream), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    for name in ("httpx", "httpcore", "websockets"):  # the test's own clients
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        with served(create_app(Settings(**settings), fake_engine(speaking))) as client:
            log.served_from = len(log.text)
            yield client, log
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def test_a_request_is_one_object_with_all_that_is_known() -> None:
    with logged(api_keys=f"alice:{KEY}") as (client, log):
        answer = client.post(
            "/tts?input=query",
            json={"input": SECRET},
            headers=BEARER | {"x-request-id": "proxy-1"},
        )
        until(log.access)
    (line,) = log.access()
    assert line.pop("ms") > 0
    assert re.fullmatch(r"POST /tts 200 in \S+ ms, \d+ bytes, owner alice, .*", line.pop("message"))
    assert line.pop("time")
    assert line == {
        "level": "INFO",
        "logger": "app.api.gate.access_log",
        "request_id": answer.headers["x-request-id"],
        "method": "POST",
        "path": "/tts",
        "status": 200,
        "bytes": len(answer.content),
        "whole": True,
        "owner": "alice",
        "client": "127.0.0.1",
        "client_request_id": "proxy-1",
    }


def test_what_was_refused_is_a_line_too() -> None:
    with logged(api_keys=f"alice:{KEY}", rate_per_minute=1) as (client, log):
        client.get("/v1/models", headers={"origin": "https://bad.example"})
        client.get("/v1/models", headers={"authorization": "Bearer wrong"})
        client.get("/v1/models", headers=BEARER)
        client.get("/v1/models", headers=BEARER)
        client.get("/health", headers={"x-request-id": "a b"})
        until(lambda: len(log.access()) == 5)
    assert sorted(line["status"] for line in log.access()) == [200, 401, 403, 422, 429]


FORWARDED = {
    "10.0.0.7": "10.0.0.7",
    "2001:db8::1": "2001:db8::1",
    "fe80::1%" + "z" * 500: "fe80::1",
    "anybody": "",
    "x" * 8000: "",
    "10.0.0.7 CRITICAL": "",
}


def test_a_forwarded_client_is_an_address() -> None:
    with logged() as (server, log):
        for sent in FORWARDED:
            server.get("/v1/models", headers={"x-forwarded-for": sent})
        until(lambda: len(log.access()) == len(FORWARDED))
    assert [line["client"] for line in log.access()] == [*FORWARDED.values()]  # one connection


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_text_and_no_key_is_in_the_log_whatever_happens(form: logs.LogFormat) -> None:
    bodies: list[dict[str, Any]] = [
        {"input": SECRET, "trace": True},
        {"input": SECRET + " break"},
        {"input": SECRET + " unreadable"},
        {"input": SECRET, "voice": SECRET},
        {"input": SECRET, SECRET: 1},
        {"input": [SECRET]},
    ]
    with logged(form, api_keys=f"alice:{KEY}") as (client, log):
        answers = [client.post("/tts", json=body, headers=BEARER) for body in bodies]
        with live(client, subprotocols=["valle.speech.v1", f"valle.key.{KEY}"]) as session:
            session.say(SECRET)
        until(lambda: "WS /v1/audio/speech/stream 101" in log.text)
    assert [one.status_code for one in answers] == [200, 500, 500, 404, 422, 422]
    assert SECRET not in log.text
    assert KEY not in log.text
    lines, names = log.text.splitlines(), [one.headers["x-request-id"] for one in answers]
    for name in names:
        assert any(name in line and "POST /tts" in line for line in lines)
    assert any(names[1] in line and "failed" in line for line in lines)  # the engine names its job


def test_the_text_is_in_the_log_where_the_operator_asks_for_it() -> None:
    with logged("text", log_text=True) as (client, log):
        client.post("/tts", json={"input": SECRET + "\nbreak"})
        with live(client) as session:
            session.say("Over the wire.")
    (line,) = [line for line in log.text.splitlines() if SECRET in line]
    assert rf"said '{SECRET}\nbreak'" in line
    assert "Over the wire." in log.text


@pytest.mark.parametrize("form", ["text", "json"])
def test_nobody_can_forge_a_line(form: logs.LogFormat) -> None:
    quoted = "".join(f"%{byte:02x}" for byte in FORGED.encode())
    with logged(form, log_text=True) as (client, log):
        for path in (f"/{quoted}", f"/v1/audio/speech/{quoted}", f"/v1/audio/voices/{quoted}"):
            assert client.get(path).status_code in {404, 422}
        client.post("/tts", json={"input": FORGED, "voice": FORGED, FORGED: 1})
        client.post("/tts", json={"input": FORGED + "break"})
        client.post("/tts", json={"input": "Hi.", "voice": FORGED})
        for header in (b"x-request-id: a\rforged", b"x-request-id: a\x1b[2J", b"x\n forged: 1"):
            raw(
                client,
                b"GET /forged HTTP/1.1\r\nHost: 127.0.0.1\r\n" + header + b"\r\n\r\n",
                more=False,
            )
        raw(client, b"GET /\r\nCRITICAL forged HTTP/1.1\r\n\r\n", more=False)
        with live(client) as session:
            session.send(FORGED)
            session.say(FORGED)
        client.get("/the-end")
        until(lambda: "/the-end" in log.text)
    assert "forged" in log.text
    for line in log.text.split("\n")[:-1]:
        assert re.match(BEGINS[form], line), line
        assert line.isprintable()
        level = json.loads(line)["level"] if form == "json" else line.partition("[")[0]
        assert "CRITICAL" not in level


def test_no_header_of_an_answer_is_a_callers(toy_server: httpx.Client) -> None:
    for field in ("voice", "preset", "model", "language"):
        body = {"input": "Hi.", field: "x\r\nx-forged: 1"}
        answer = toy_server.post("/tts", json=body, headers={"x-request-id": "mine"})
        assert answer.status_code in {404, 422}
        assert "x-forged" not in answer.headers
        assert "mine" not in answer.headers.values()


def test_a_client_that_leaves_amid_the_sound_is_told_so() -> None:
    speaking = FakeBackend(chunk_s=0.1, block={"wait": "ar"})
    with logged(speaking=speaking) as (client, log):
        speaking.let(2)
        body = {"input": "wait for ever", "response_format": "pcm"}
        with client.stream("POST", "/tts", json=body) as answer:
            next(answer.iter_bytes())
        until(log.access)
        speaking.let(100)
    (line,) = log.access()
    assert (line["status"], line["whole"]) == (200, False)
    assert "bytes and cut" in line["message"]


def test_probes_are_told_at_debug_alone_and_their_failures_as_ever() -> None:
    with logged() as (client, log):
        for path in ("/health", "/metrics", "/v1/models"):
            assert client.get(path).status_code == 200
        until(lambda: len(log.access()) == 3)
        levels = {line["path"]: line["level"] for line in log.access()}
        assert levels == {"/health": "DEBUG", "/metrics": "DEBUG", "/v1/models": "INFO"}
        assert client.delete("/health").status_code == 405
        until(lambda: len(log.access()) == 4)
        assert log.access()[-1]["level"] == "INFO"
