"""What a listener makes of the bytes that came."""

from typing import Any

import httpx2
import numpy as np
import pytest

from benchmarks.harness.http_client import codes_sha256, open_client
from benchmarks.harness.websocket_client import receive_live
from tools.listeners import ReceivedSpeech, gaps, receive, underrun_s

SECOND = 48_000  # bytes


def test_who_gets_sound_in_time_hears_no_gap():
    assert underrun_s([(5.0, SECOND), (5.9, SECOND), (7.0, SECOND)], SECOND) == 0.0


def test_gaps_are_the_time_in_which_nothing_is_left_to_play():
    arrivals = [(0.0, SECOND), (1.5, SECOND), (2.0, SECOND), (4.0, SECOND)]
    assert underrun_s(arrivals, SECOND) == pytest.approx(0.5 + 0.5)
    assert gaps(arrivals, SECOND) == [(1.0, 0.5), (3.0, 0.5)]
    assert gaps([], SECOND) == []


def test_first_sound_is_the_byte_that_holds_a_sample_over_50_db_below_full_scale():
    samples = np.array([0, 103, -103, -104, 30_000], "<i2").tobytes()
    arrivals = ((0.1, 6), (0.2, 1), (0.3, 1), (0.4, 2))
    assert ReceivedSpeech(200, arrivals=arrivals, sound=samples).first_audio_s == 0.3


def test_the_lowest_sample_is_loud():
    sound = np.array([-(2**15)], "<i2").tobytes()
    assert ReceivedSpeech(200, arrivals=((0.1, 2),), sound=sound).first_audio_s == 0.1


def test_silence_has_no_first_sound():
    assert ReceivedSpeech(200, arrivals=((0.1, 4),), sound=b"\0\0\1\0").first_audio_s is None


@pytest.mark.anyio
async def test_http_and_websocket_hear_the_same(toy_server: httpx2.Client):
    url = str(toy_server.base_url).rstrip("/")
    fields: dict[str, Any] = {"seed": 2, "max_duration_s": 0.3}
    async with open_client(url) as client:
        whole = await receive(client, "Hello.", stream=False, **fields)
        streamed = await receive(client, "Hello.", **fields)
        live = await receive_live(url, "Hello.", **fields)
        prints = {await codes_sha256(client, one) for one in (whole, streamed, live)}
    assert whole.ok
    assert streamed.ok
    assert live.ok
    assert len(prints) == 1
    assert whole.sound == streamed.sound == live.sound
    assert whole.audio_s == pytest.approx(0.3, abs=0.1)


@pytest.mark.anyio
async def test_what_is_refused_is_no_speech(toy_server: httpx2.Client):
    url = str(toy_server.base_url).rstrip("/")
    async with open_client(url) as client:
        refused = await receive(client, "Hello.", top_p=2)
    assert (refused.status, refused.ok) == (422, False)
    refused = await receive_live(url, "Hello.", top_p=2)
    assert not refused.ok
