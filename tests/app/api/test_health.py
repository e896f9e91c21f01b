import asyncio

from app.engine.engine import SpeechEngine
from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.fakes import FakeBackend, fake_engine


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
        asyncio.run(app.state.admission.close(timeout_s=0))
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
