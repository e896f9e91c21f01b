import os
import subprocess
import sys

import pytest

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.fakes import fake_engine


@pytest.mark.slow
def test_importing_it_reads_no_settings_and_makes_no_application():
    code = (
        "import app.main, fastapi;"
        "assert not any(isinstance(v, fastapi.FastAPI) for v in vars(app.main).values())"
    )
    environment = os.environ | {"TTS_NONSENSE": "1"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_the_engine_starts_and_stops_with_the_application():
    engine = fake_engine()
    with served(create_app(Settings(), engine)) as client:
        assert client.post("/tts", json={"input": "hello"}).status_code == 200
    assert engine.status.state == "stopped"


def test_two_applications_share_nothing():
    with served(create_app(Settings(), fake_engine())) as one:
        with served(create_app(Settings(), fake_engine())):
            pass
        assert one.post("/tts", json={"input": "hello"}).status_code == 200
