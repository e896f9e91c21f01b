"""Once the engine is ready, full collections do not go through what was loaded."""

import gc

import pytest

from app.garbage_collection import freeze_when_ready
from tests.fakes import fake_engine

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_what_is_loaded_is_exempt() -> None:
    gc.unfreeze()  # what an engine of another test left
    try:
        async with fake_engine() as engine:
            await engine.lifecycle.wait_ready()
            freeze_when_ready(engine).join(20)
            assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()


async def test_an_engine_that_stops_ends_the_wait() -> None:
    engine = fake_engine()
    thread = freeze_when_ready(engine)
    engine.start()
    await engine.lifecycle.wait_ready()
    await engine.stop()
    thread.join(20)
    assert not thread.is_alive()
    gc.unfreeze()
