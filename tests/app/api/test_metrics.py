"""What Prometheus reads, as its own parser does."""

from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from app.api.middleware.metrics import HttpMetrics
from app.version import VERSION
from tests.app.tools.live_client import live, serving
from tests.app.tools.serving import until

KEY = "alice-0123456789"

Labels = frozenset[tuple[str, str]]


def read(client: httpx.Client, **headers: str) -> dict[tuple[str, Labels], float]:
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200
    openmetrics = answer.headers["content-type"].startswith("application/openmetrics-text")
    families = (parse_openmetrics if openmetrics else parse_text)(answer.text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def requests(method: str, route: str, status: int) -> tuple[str, Labels]:
    labels = {"method": method, "route": route, "status": str(status)}
    return "tts_http_requests_total", frozenset(labels.items())


def test_requests_are_counted_by_the_template_of_their_route() -> None:
    with serving() as (client, _):
        for name in ("a", "b", "c"):
            client.get(f"/v1/audio/speech/{name}")
            client.get(f"/nowhere/{name}")
        client.request("BREW", "/tts")
        with live(client) as session:
            session.say("Hi.")
        until(lambda: requests("WS", "/v1/audio/speech/stream", 101) in read(client))
        told = read(client)
    assert told[requests("GET", "/v1/audio/speech/{id}", 404)] == 3
    assert told[requests("GET", "none", 404)] == 3
    assert told[requests("other", "/tts", 405)] == 1
    route = frozenset({("route", "/v1/audio/speech/{id}")})
    assert told["tts_http_request_seconds_count", route] == 3


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_the_engine_the_wire_and_the_process_are_told_at_once(client, accept) -> None:
    told = read(client, accept=accept)
    names = {name for name, _ in told}
    assert {
        "tts_queued_jobs",
        "tts_underrun_seconds_total",
        "tts_http_requests_total",
        "tts_live_sessions",
        "tts_http_working",
        "process_resident_memory_bytes",
        "process_open_fds",
        "tts_build_info",
    } <= names
    (build,) = [dict(labels) for name, labels in told if name == "tts_build_info"]
    assert build["version"] == VERSION == client.get("/health").json()["version"]


def test_open_sessions_and_work_are_gauges() -> None:
    with serving() as (client, _):
        with live(client) as session:
            session.create()
            session.text("Hi.")
            told = read(client)
            assert told["tts_live_sessions", frozenset()] == 1
            assert told["tts_http_working", frozenset()] == 1
        gauges = [(name, frozenset[Any]()) for name in ("tts_live_sessions", "tts_http_working")]
        until(lambda: [read(client)[gauge] for gauge in gauges] == [0, 0])


@pytest.mark.parametrize(
    ("setting", "without", "with_key"), [("key", 401, 200), ("open", 200, 200), ("off", 401, 404)]
)
def test_the_operator_says_who_may_read_them(setting, without, with_key) -> None:
    bearer = {"authorization": f"Bearer {KEY}"}
    with serving(api_keys=KEY, metrics=setting) as (client, _):
        assert client.get("/metrics").status_code == without
        assert client.get("/metrics", headers=bearer).status_code == with_key


def test_playbacks_are_those_of_streams(caplog) -> None:
    continuous = "tts_continuous_jobs_total"
    with serving() as (client, _), caplog.at_level("INFO", logger="app.engine"):
        for stream, counted in ((False, 0), (True, 1)):
            client.post("/tts", json={"input": "Hi.", "seed": 1, "stream": stream})
            told = read(client)
            assert sum(value for (name, _), value in told.items() if name == continuous) == counted
    assert "0.00 s stalled" in caplog.text


def test_two_applications_of_one_process_count_apart() -> None:
    one, other = HttpMetrics(), HttpMetrics()
    one.count("GET", "/tts", 200, 0.1)
    labels = {"method": "GET", "route": "/tts", "status": "200"}
    assert one.registry.get_sample_value("tts_http_requests_total", labels) == 1
    assert other.registry.get_sample_value("tts_http_requests_total", labels) is None


@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
@pytest.mark.parametrize("version", ["abc", "1.x", "1.0.0-", "9.9.9", "1e9", "", "\xff", "0.0.1"])
def test_an_odd_version_is_answered_in_a_form_that_exists(client, kind, version) -> None:
    accepted = f"{kind};version={version}".encode("latin-1")
    answer = client.get("/metrics", headers=[(b"accept", accepted)])
    assert answer.status_code == 200
    assert b"tts_jobs" in answer.content
