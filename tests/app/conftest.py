from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.main import create_app
from app.settings import Settings
from tests.app.tools.redis_server import RedisServer, redis_running
from tests.app.tools.serving import served


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def toy_server(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a real server that speaks with the toy model."""
    voices = str(tmp_path_factory.mktemp("voices"))  # and not what the developer uploaded
    with served(create_app(Settings(model=str(toy), device="cpu", voices=voices))) as client:
        yield client


@pytest.fixture(scope="session")
def builtin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a real server that speaks with the built-in model; for `weights` tests."""
    voices = str(tmp_path_factory.mktemp("voices"))
    with served(create_app(Settings(device="cpu", voices=voices))) as client:
        yield client


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A Redis of the test's own."""
    with redis_running() as server:
        yield server
