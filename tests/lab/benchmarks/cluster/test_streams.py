"""Clients know a whole speech from one that only looks whole."""

import asyncio
from pathlib import Path
from time import monotonic

import pytest

from app.audio.containers import pcm
from app.commands.bench.listeners import ReceivedSpeech
from app.settings import Settings
from lab.benchmarks.cluster.card import codes_of, fast_app, sound_of
from lab.benchmarks.cluster.simulate import Load, measure
from lab.benchmarks.cluster.streams import JobLog, overhead, whole_again
from tests.app.tools.serving import served

pytestmark = pytest.mark.anyio
TEXT = "Hello there."
WHOLE = pcm(sound_of(codes_of(3, len(TEXT))))


def outcome(status: int = 200, sound: bytes = WHOLE, broke: str | None = None) -> str:
    outcomes = JobLog()
    got = ReceivedSpeech(status, sound=sound, arrivals=((0.5, 9),), broke=broke)
    outcomes.add("http", TEXT, 3, got)
    assert outcomes.counts["http"] == 1
    (found,) = outcomes.counts.keys() - {"http"}
    return found


def test_an_outcome_is_what_the_client_has() -> None:
    assert outcome() == "whole"
    assert outcome(sound=WHOLE[:-2]) == "short"
    assert outcome(sound=WHOLE[:-2] + b"ab") == "short"
    assert outcome(sound=WHOLE[:-2], broke="RemoteProtocolError") == "broken"
    assert outcome(status=503, sound=b"{}") == "refused"
    assert outcome(status=0, sound=b"", broke="ConnectError") == "broken"


@pytest.fixture(scope="module")
def card():
    """The URL of a card of one row."""
    settings = Settings(slots=1)
    with served(fast_app(settings)) as client:
        yield str(client.base_url)


async def test_replicas_are_whole_again_after_they_were_not(tmp_path: Path) -> None:
    replica = tmp_path / "replica"
    replica.touch()
    watching = asyncio.create_task(whole_again(["test", "-e", str(replica)], monotonic()))
    await asyncio.sleep(0.3)
    assert not watching.done(), "nothing was missing yet"
    replica.unlink()
    await asyncio.sleep(0.5)
    assert not watching.done()
    replica.touch()
    assert await watching > 0


async def test_overheads_are_relative_to_the_first(card) -> None:
    direct, same = await overhead([card, card], 4)
    assert direct["overhead_p50_ms"] == 0
    assert same["first_p50_ms"] > 0


async def test_a_replica_is_measured_alone(card) -> None:
    load = Load(1, 1, 0.0, 0.002, 20)
    measured = await measure(card, load, 12)
    assert measured.keys() == {"overhead_ms", "between_ms"}
    assert measured["overhead_ms"] > 0
