from collections.abc import Iterator

import httpx
import pytest

from tests.app.tools.live_client import serving
from tests.fakes import FakeBackend


@pytest.fixture(scope="module")
def backend() -> FakeBackend:
    """What `client`'s server speaks with."""
    return FakeBackend(fail_at={"break": "ar", "unreadable": "text"})


@pytest.fixture(scope="module")
def client(backend: FakeBackend) -> Iterator[httpx.Client]:
    """A client of a server with default settings, which gives all sound at the end."""
    with serving(backend) as (one, _):
        yield one


@pytest.fixture(scope="module")
def impatient() -> Iterator[httpx.Client]:
    """A client of one that closes a socket where nothing is said for half a second."""
    with serving(FakeBackend(chunk_s=0.1), idle_timeout_s=0.5) as (one, _):
        yield one


@pytest.fixture(scope="module")
def streaming() -> Iterator[httpx.Client]:
    """A client of one that gives a chunk a frame."""
    with serving(FakeBackend(chunk_s=0.1, block={"wait": "ar"}, fail_at={"break": "ar"})) as (
        one,
        _,
    ):
        yield one
