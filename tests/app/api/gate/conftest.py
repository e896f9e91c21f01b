from collections.abc import Iterator

import httpx
import pytest

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.fakes import FakeBackend, fake_engine


@pytest.fixture(scope="module")
def backend() -> FakeBackend:
    """What `client`'s server speaks with."""
    return FakeBackend()


@pytest.fixture(scope="module")
def client(backend: FakeBackend) -> Iterator[httpx.Client]:
    """A client of a server with default settings."""
    with served(create_app(Settings(), fake_engine(backend))) as one:
        yield one
