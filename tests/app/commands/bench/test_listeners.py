"""What a listener makes of the bytes that came, and what many of them make of a load."""

import asyncio
import json

import httpx2
import numpy as np
import pytest

from app.commands.bench.listeners import ReceivedSpeech, closed_loop, figures, gaps, underrun_s

SECOND = 48_000  # bytes
TONE = b"\xff\x7f" * 24_000  # one second


@pytest.mark.parametrize(
    ("arrivals", "heard"),
    [
        ([(5.0, SECOND), (5.9, SECOND), (7.0, SECOND)], []),
        ([(0.0, SECOND), (1.5, SECOND), (2.0, SECOND), (4.0, SECOND)], [(1.0, 0.5), (3.0, 0.5)]),
        ([], []),
    ],
)
def test_gaps_are_the_times_in_which_nothing_is_left_to_play(arrivals, heard) -> None:
    assert gaps(arrivals, SECOND) == heard
    assert underrun_s(arrivals, SECOND) == pytest.approx(sum(length_s for _, length_s in heard))


@pytest.mark.parametrize(
    ("samples", "arrivals", "first_s"),
    [
        ([0, 103, -103, -104, 30_000], ((0.1, 6), (0.2, 1), (0.3, 1), (0.4, 2)), 0.3),
        ([-(2**15)], ((0.1, 2),), 0.1),
        ([0, 1], ((0.1, 4),), None),
    ],
)
def test_first_sound_is_the_byte_that_holds_a_sample_over_50_db_below_full_scale(
    samples, arrivals, first_s
) -> None:
    sound = np.array(samples, "<i2").tobytes()
    assert ReceivedSpeech(200, arrivals=arrivals, sound=sound).first_audio_s == first_s


def test_figures_are_those_of_the_listeners_that_heard_something() -> None:
    smooth = ReceivedSpeech(200, arrivals=((0.2, SECOND),), sound=TONE)
    late = ReceivedSpeech(200, arrivals=((0.1, SECOND // 2), (1.0, SECOND // 2)), sound=TONE)
    busy = ReceivedSpeech(503, sound=b"busy")
    cut = ReceivedSpeech(200, sound=b"..", arrivals=((1.0, 2),), broke="ReadError")
    found = figures("4 at once", [smooth, late, busy, cut], 0.5)
    assert (found.requests, found.failed, found.errors) == (4, 2, ("503: busy", "ReadError"))
    assert (found.gaps, found.smooth) == (1, False)
    assert found.rtf_p50 == pytest.approx(0.6)
    assert found.underrun_s == pytest.approx(0.4)
    assert found.first_p50_ms == pytest.approx(200)  # who heard a gap is counted and not timed
    assert figures("1 at once", [busy], 0.0).failed == 1


def test_every_listener_asks_for_so_many_sentences_no_two_with_one_seed() -> None:
    asked: list[tuple[str, int]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        asked.append((body["input"], body["seed"]))
        return httpx2.Response(
            200, stream=httpx2.ByteStream(b"ab"), headers={"x-sample-rate": "24000"}
        )

    async def measure() -> None:
        transport = httpx2.MockTransport(answer)
        async with httpx2.AsyncClient(transport=transport, base_url="http://here") as client:
            assert (await closed_loop(client, 3, ["a", "b"] * 3)).failed == 0

    asyncio.run(measure())
    assert len({seed for _, seed in asked}) == len(asked) == 6
    assert {text for text, _ in asked} == {"a", "b"}
