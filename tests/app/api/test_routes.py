import asyncio
import hashlib
from io import BytesIO
from typing import Literal

import pytest
import soundfile

from app.api.schemas import SpeechRequest
from app.engine.engine import SpeechEngine
from app.main import create_app
from app.settings import Settings
from app.version import VERSION
from tests.app.tools.serving import served, until
from tests.fakes import FakeBackend, engine_that_loads, fake_engine

HELLO = {"input": "Hello there. This is the built in voice.", "max_duration_s": 2}


@pytest.mark.parametrize("path", ["/tts", "/v1/audio/speech"])
def test_speech_is_a_wav_with_an_account_of_how_it_was_made(toy_server, path):
    wanted = {"seed": 5, "temperature": 0.9, "response_format": "wav"}
    answer = toy_server.post(path, json=HELLO | wanted)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "audio/wav"
    samples, rate_hz = soundfile.read(BytesIO(answer.content), dtype="int16")
    assert rate_hz == 24_000
    assert samples.ndim == 1
    assert samples.any()
    headers = answer.headers
    assert headers["x-seed"] == "5"
    assert headers["x-voice"] == "toy"
    assert (headers["x-nar"], headers["x-decoder"]) == ("chunks", "codec")
    assert headers["x-preset"] == "default"
    assert headers["x-finish-reason"] in {"stop", "length"}
    assert len(bytes.fromhex(headers["x-codes-sha256"])) == hashlib.sha256().digest_size
    assert len(bytes.fromhex(headers["x-request-id"])) == 16
    assert abs(float(headers["x-audio-ms"]) - len(samples) / 24) <= 1
    assert float(headers["x-queue-ms"]) >= 0
    assert float(headers["x-ttfa-ms"]) > 0
    assert float(headers["x-rtf"]) > 0
    assert int(headers["x-prompt-tokens"]) > 0
    assert headers["x-completion-tokens"] == headers["x-frames"]
    assert "ar;dur=" in headers["server-timing"]


def test_a_seed_that_was_drawn_is_reported_and_repeats_the_speech(toy_server):
    first = toy_server.post("/tts", json=HELLO)
    again = toy_server.post("/tts", json=HELLO | {"seed": int(first.headers["x-seed"])})
    assert first.content == again.content


def test_max_duration_s_bounds_the_speech_and_says_so(toy_server):
    answer = toy_server.post(
        "/tts", json={"input": "One. Two. Three.", "max_duration_s": 0.4, "min_frames": 1000}
    )
    assert answer.headers["x-finish-reason"] == "length"
    assert answer.headers["x-frames"] == "30"


def test_health_and_readiness_tell_the_model_and_the_state_of_the_engine(toy_server):
    health = toy_server.get("/health")
    assert health.status_code == 200
    body = health.json()
    assert 0 <= body.pop("heartbeat_age_s") < 60
    beats_s = body.pop("heartbeats_s")
    assert beats_s.keys() == {"level_0", "sound", "text", "recordings"}
    assert beats_s["recordings"] == 0
    assert body.pop("streams") >= 0
    assert body.pop("first_audio_s") > 0
    assert body == {
        "version": VERSION,
        "status": "ok",
        "state": "ready",
        "model": "toy",
        "device": "cpu",
        "weights": "int8",
        "decoder": "codec",
        "queued": 0,
        "running": 0,
        "slots": 20,
        "used_slots": 0,
        "deterministic": True,
        "golden": None,
        "batching": "in integers",
        "kernels": "",
        "unrecorded": [],
        "shared_state": "memory",
    }
    assert toy_server.head("/ready").status_code == toy_server.head("/health").status_code == 200
    ready = toy_server.get("/ready").json()
    assert len(ready.pop("model_sha256")) == 64
    assert ready == {"status": "ready", "model": "toy", "word_times": False}


def test_every_answer_has_its_own_request_id(toy_server):
    paths = ["/health", "/nowhere", "/v1/models", "/tts"]
    ids = {toy_server.get(path).headers["x-request-id"] for path in paths}
    assert len(ids) == len(paths)


def test_a_request_that_takes_too_long_is_told_so():
    speaking = FakeBackend(block={"wait": "ar"})
    engine = fake_engine(speaking, request_timeout_s=0.1)
    with served(create_app(Settings(), engine)) as client:
        answer = client.post("/tts", json={"input": "wait"})
        speaking.let(100)
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "deadline_exceeded"


def test_while_the_model_loads_health_is_green_and_ready_tells_what_it_waits_for():
    engine, may_load = engine_that_loads()
    with served(create_app(Settings(), engine), until_ready=False) as client:
        until(lambda: engine.status.state == "loading")
        assert client.get("/health").json()["state"] == "loading"
        for answer in (
            client.get("/ready"),
            client.get("/v1/audio/voices"),
            client.post("/tts", json={"input": "early"}),
        ):
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            assert "waiting for the model to load" in answer.json()["error"]["message"]
        may_load.set()
        until(lambda: client.get("/ready").status_code == 200)


PRIORITIES: tuple[Literal["normal", "background"], ...] = ("normal", "background")


def test_a_request_in_the_background_waits_behind_the_others(toy_server):
    body = {"input": "Hi.", "max_duration_s": 0.2}
    assert toy_server.post("/tts", json={**body, "priority": "background"}).status_code == 200
    orders = [SpeechRequest(priority=one, **body).job_of("Hi.", "id") for one in PRIORITIES]
    assert [job.priority for job in orders] == sorted(job.priority for job in orders)


def test_health_tells_how_long_ago_the_engine_moved(monkeypatch) -> None:
    engine = fake_engine()
    with served(create_app(Settings(), engine)) as client:
        assert 0 <= client.get("/health").json()["heartbeat_age_s"] < 60
        monkeypatch.setattr("app.engine.serving.status.STALLED_AFTER_S", -1)
        stuck = client.get("/health")
        assert stuck.status_code == 503
        assert "has not moved" in stuck.json()["error"]["message"]
        monkeypatch.undo()
        assert client.get("/health").status_code == 200


def test_a_service_that_closes_is_healthy_but_not_ready() -> None:
    app = create_app(Settings(), fake_engine())
    with served(app) as client:
        asyncio.run(app.state.services.admission.close(timeout_s=0))
        ready = client.get("/ready")
        assert ready.status_code == 503
        assert ready.headers["retry-after"]
        assert "shutting down" in ready.json()["error"]["message"]
        assert client.head("/ready").status_code == 503
        assert client.get("/health").status_code == 200


def test_health_tells_how_many_golden_requests_had_the_codes_stored() -> None:
    asked = SpeechEngine(
        FakeBackend, Settings(max_queue=1, request_timeout_s=9.0, check_golden=True)
    )
    with served(create_app(Settings(), asked)) as client:
        assert client.get("/health").json()["golden"] == "1/2"
    with served(create_app(Settings(), fake_engine())) as client:
        assert client.get("/health").json()["golden"] is None
