"""Parts of a text at rates of their own: the same codes, played slower or faster, on every way."""

from typing import Any

import httpx
import numpy as np
import pytest

from app.engine.join.joiner import EDGE_SILENCE_S, SILENCE_DBFS
from tests.app.tools.answers import asked

pytestmark = pytest.mark.weights
RATE_HZ = 24_000
PLAIN = "Glue the sheet. We won the game. It is done."
TEXT = 'Glue the sheet. <prosody rate="50%">We won the game.</prosody> It is done.'
BASE: dict[str, Any] = {
    "seed": 1,
    "voice": "heart",
    "response_format": "pcm",
    "timestamps": "word",
}


def say(client: httpx.Client, text: str, **fields: Any) -> tuple[dict[str, Any], bytes]:
    """Speak; return the report and the sound."""
    report, answer = asked(client, BASE | {"input": text} | fields)
    return report, answer.content


@pytest.fixture(scope="module")
def plain(builtin: httpx.Client) -> tuple[dict[str, Any], bytes]:
    return say(builtin, PLAIN)


@pytest.fixture(scope="module")
def slowed(builtin: httpx.Client) -> tuple[dict[str, Any], bytes]:
    return say(builtin, TEXT)


@pytest.mark.slow
def test_the_codes_are_the_same_and_only_that_part_lasts_longer(plain, slowed) -> None:
    (usual, whole), (report, sound) = plain, slowed
    assert [one["rate"] for one in report["utterances"]] == [1, 0.5, 1]
    assert report["codes_sha256"] == usual["codes_sha256"]
    first, second, third = report["utterances"]
    was = usual["utterances"]
    cut = round((first["start_s"] + first["duration_s"]) * RATE_HZ) * 2
    assert sound[:cut] == whole[:cut]
    tail = round(third["duration_s"] * RATE_HZ) * 2
    assert third["duration_s"] == was[2]["duration_s"]
    assert sound[-tail:] == whole[-tail:]
    # But for silence of 60 ms at an edge, which is no longer.
    began = round(was[1]["start_s"] * RATE_HZ)
    spoken = np.frombuffer(whole, "<i2")[began : began + round(was[1]["duration_s"] * RATE_HZ)]
    loud = np.flatnonzero(np.abs(spoken / 32768) > 10 ** (SILENCE_DBFS / 20))
    edges_s = loud[0] / RATE_HZ, (len(spoken) - loud[-1]) / RATE_HZ
    wanted_s = 2 * (was[1]["duration_s"] - sum(edges_s))
    wanted_s += sum(min(2 * edge_s, EDGE_SILENCE_S) for edge_s in edges_s)
    assert second["duration_s"] == pytest.approx(wanted_s, abs=0.05)
    later_s = second["duration_s"] - was[1]["duration_s"]
    assert third["start_s"] - was[2]["start_s"] == pytest.approx(later_s, abs=1e-3)
    assert report["audio_s"] == round(len(sound) / 2 / RATE_HZ, 6)


def test_its_words_are_told_where_they_are_heard(plain, slowed) -> None:
    (usual, _), (report, _) = plain, slowed
    second, was = report["utterances"][1], usual["utterances"][1]
    assert second["frame_s"] == pytest.approx(2 * was["frame_s"])
    for word, before in zip(second["words"], was["words"], strict=True):
        # From the beginning of the utterance's own sound, before it is trimmed.
        at_s = word["start_s"] - second["start_s"] + second["trimmed_s"]
        before_s = before["start_s"] - was["start_s"] + was["trimmed_s"]
        if word["index"]:  # the first begins with the sound
            assert at_s == pytest.approx(2 * before_s, abs=1e-3)
        assert not word["missing"]
    ends_s = second["start_s"] + second["duration_s"]
    assert second["words"][-1]["end_s"] <= ends_s + 1e-3
    assert report["utterances"][2]["words"][0]["start_s"] >= ends_s


@pytest.mark.slow
def test_it_is_repeated_and_gone_on_from(builtin, slowed) -> None:
    report, sound = slowed
    again = builtin.get(f"/v1/audio/speech/{report['id']}/audio?response_format=pcm")
    assert again.content == sound
    for utterance, frame in ((1, 20), (2, 0)):
        place = {"id": report["id"], "utterance": utterance, "frame": frame}
        assert say(builtin, TEXT, continue_from=place)[1] == sound


@pytest.mark.slow
def test_the_speed_of_the_request_comes_on_top(builtin, slowed) -> None:
    report, sound = slowed
    faster, shorter = say(builtin, TEXT, speed=2.0)
    assert len(shorter) == pytest.approx(len(sound) / 2, abs=4)
    for one, other in zip(faster["utterances"], report["utterances"], strict=True):
        assert one["frame_s"] == pytest.approx(other["frame_s"] / 2)
        assert one["start_s"] == pytest.approx(other["start_s"] / 2, abs=1e-5)


@pytest.mark.parametrize("rate", [0.25, 4])
def test_a_limit_of_the_length_is_of_what_is_heard(builtin, rate) -> None:
    text = f"[rate:{rate}] Glue the sheet to the dark blue background."
    report, sound = say(builtin, text, max_duration_s=0.6)
    frames = len(report["utterances"][0]["codes"])
    if rate < 1:
        assert frames == round(0.6 * 75 * rate) + 1  # 11.25 are begun
        assert report["finish_reason"] == "length"
        assert len(sound) / 2 / RATE_HZ <= 0.6 + 1 / (75 * rate)
    else:
        assert report["finish_reason"] == "stop"  # at 1 it would be cut
        assert frames > 0.6 * 75


@pytest.mark.slow
def test_a_long_fast_speech_is_drawn_to_its_end(builtin) -> None:
    """What is ready and not yet played is counted in seconds of sound."""
    text = "[rate:4] " + "The birch canoe slid on the smooth planks. " * 8
    report, sound = say(builtin, text)
    assert report["frames"] > 75 * 15
    assert report["finish_reason"] == "stop"
    assert np.abs(np.frombuffer(sound, "<i2")[-RATE_HZ:]).max() > 1000


def test_how_it_would_be_read_tells_rates(builtin) -> None:
    answer = builtin.post("/v1/audio/phonemes", json={"input": TEXT}).json()
    assert [one["rate"] for one in answer["utterances"]] == [1, 0.5, 1]
