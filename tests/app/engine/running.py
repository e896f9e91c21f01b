"""An engine around a fake while it runs, and what a test waits for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from app.engine.engine import SpeechEngine
from tests.fakes import FakeBackend, fake_engine


@asynccontextmanager
async def running(
    backend: FakeBackend | None = None, **limits: Any
) -> AsyncIterator[tuple[SpeechEngine, FakeBackend]]:
    """Run an engine, if nothing is given around a fake in which texts with "wait" wait."""
    own = backend or FakeBackend(block={"wait": "ar"})
    async with fake_engine(own, **limits) as engine:
        await engine.lifecycle.wait_ready()
        yield engine, own


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)
