"""Clients know a whole speech from one that only looks whole."""

from app.audio.containers import pcm
from benchmarks.cluster.card import LEVELS, codes_of, sound_of
from benchmarks.cluster.streams import Outcomes
from benchmarks.harness.http_client import ReceivedSpeech

TEXT = "Hello there."
WHOLE = pcm(sound_of(codes_of(3, len(TEXT))))


def outcome(status: int = 200, sound: bytes = WHOLE, broke: str | None = None) -> str:
    outcomes = Outcomes()
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


def test_a_speech_is_that_of_its_seed() -> None:
    assert codes_of(3, 5).shape == (5, LEVELS)
    assert (codes_of(3, 5) == codes_of(3, 5)).all()
    assert (codes_of(3, 5) != codes_of(4, 5)).any()
    assert len(sound_of(codes_of(3, 5))) == 5 * 1920
    assert abs(sound_of(codes_of(3, 5))).max() <= 0.3
