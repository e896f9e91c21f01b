import asyncio
from functools import partial

import numpy as np
import pytest

from app.api.errors import RequestInProgress
from app.api.history.report import AskedSpeech, Failure
from app.api.history.shared import SharedSpeeches
from app.api.schemas import SpeechOptions
from app.engine.core import SpeechJob, SpeechResult
from app.engine.errors import UnknownSpeech
from app.engine.results import UtteranceResult
from app.storage.shared_state import KEY_PREFIX
from samplers.knobs.params import SamplingParams
from tests.app.api.history.test_packing import HOSTILE
from tests.app.tools.redis_server import processes
from tests.fakes import result_of

pytestmark = pytest.mark.anyio

NOISE = np.random.default_rng(1)


def replicas(server, number=2, *, limit=8, keep_s=60, keep_bytes=1_000_000):
    made = partial(SharedSpeeches, limit=limit, keep_s=keep_s, keep_bytes=keep_bytes)
    return processes(server, number, made)


def speech(name: str, owner: str = "", frames: int = 10) -> tuple[AskedSpeech, SpeechResult]:
    job = SpeechJob(name, "Hi.", SamplingParams(), owner=owner, client=owner or "127.0.0.1")
    codes = NOISE.integers(0, 1024, (frames, 8)).astype(np.int16)
    return AskedSpeech(job, SpeechOptions()), result_of(UtteranceResult(codes, "stop"), job_id=name)


async def found(recent: SharedSpeeches, name: str, owner: str = "") -> bool:
    try:
        await recent.find(name, owner)
    except UnknownSpeech:
        return False
    return True


async def written(recent: SharedSpeeches) -> None:
    while recent.unwritten:
        await asyncio.sleep(0.005)


async def ended(recent: SharedSpeeches, owner: str) -> str | None:
    """Claim an id once its claim has ended; return the speech that had it, if it is complete."""
    while True:
        try:
            return await recent.claim(owner, "id", "digest", "again")
        except RequestInProgress:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
async def test_a_value_that_others_wrote_is_a_speech_that_is_not_stored(
    redis_server, value
) -> None:
    async with replicas(redis_server, 1) as (here,):
        redis_server.client.set(f"{KEY_PREFIX}speech::one", value)
        assert not await found(here, "one")


async def test_owners_are_kept_apart(redis_server) -> None:
    async with replicas(redis_server) as (here, there):
        here.keep(*speech("one", "alice"))
        await written(here)
        assert await found(there, "one", "alice")
        for other in ("bob", "", "alice:one", "*"):
            assert not await found(there, "one", other)


async def test_one_that_failed_is_no_result(redis_server) -> None:
    async with replicas(redis_server) as (here, there):
        asked, _ = speech("one")
        here.keep(asked, Failure.of(asked.job, None, None, 0, 0.0))
        await written(here)
        with pytest.raises(UnknownSpeech, match="cancelled"):
            await there.complete("one", "")


@pytest.mark.slow
async def test_it_goes_after_its_time(redis_server) -> None:
    async with replicas(redis_server, keep_s=1) as (here, there):
        here.keep(*speech("one"))
        await written(here)
        assert await found(there, "one")
        await asyncio.sleep(1.2)
        assert not await found(there, "one")


async def test_of_too_many_the_oldest_of_the_same_client_go(redis_server) -> None:
    async with replicas(redis_server, limit=3) as (here, there):
        here.keep(*speech("hers", "alice"))
        for number in range(5):
            (here if number % 2 else there).keep(*speech(f"his-{number}", "bob"))
            await written(here)
            await written(there)
        assert await found(there, "hers", "alice")
        async with replicas(redis_server, 1) as (third,):
            assert [await found(third, f"his-{n}", "bob") for n in range(5)] == [0, 0, 1, 1, 1]
            assert await found(third, "hers", "alice")


async def test_a_client_has_so_many_bytes(redis_server, caplog) -> None:
    async with replicas(redis_server, 3, keep_bytes=65_536) as (here, there, _):
        for number in range(4):  # of 20 kB each
            here.keep(*speech(str(number), frames=1500))
        await written(here)
        assert [await found(there, str(number)) for number in range(4)] == [0, 1, 1, 1]
        stored = sum(
            redis_server.client.memory_usage(key) for key in redis_server.client.scan_iter()
        )
        assert stored < 2 * 65_536
        here.keep(*speech("large", frames=10_000))
        await written(here)
        assert await found(here, "large")  # in its own memory
        assert not await found(there, "large")
        assert "it is not" in caplog.text


async def test_what_was_kept_while_redis_was_away_is_there_when_it_is_back(redis_server) -> None:
    async with replicas(redis_server) as (here, there):
        redis_server.kill()
        here.keep(*speech("one"))
        await asyncio.sleep(0.1)
        assert await found(here, "one")
        assert not await found(there, "one")
        redis_server.start()
        await written(here)
        while not await found(there, "one"):
            await asyncio.sleep(0.01)


async def test_an_index_that_is_none_keeps_no_other_client_from_storing(redis_server) -> None:
    redis_server.client.set(f"{KEY_PREFIX}kept:alice", "x")
    async with replicas(redis_server) as (here, there):
        for name, owner in (("one", "alice"), ("two", "bob")):
            assert await here.claim(owner, "id", "digest", name) is None
            here.keep(*speech(name, owner))
        await written(here)
        assert await ended(there, "alice") is None
        assert await ended(there, "bob") == "two"
        assert await found(there, "two", "bob")


async def test_what_another_version_stored_is_not_found(redis_server) -> None:
    async with replicas(redis_server) as (here, there):
        here.keep(*speech("one"))
        await written(here)
        (key,) = redis_server.client.keys("*speech:*")
        redis_server.client.set(key, b"other")
        with pytest.raises(UnknownSpeech, match="another version"):
            await there.find("one", "")
