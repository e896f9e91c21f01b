"""A client that reads at the least rate is never given up, one that reads less is."""

import socket
from itertools import accumulate

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.middleware.readers import (
    HIDDEN_BYTES,
    PIECE_BYTES,
    SEND_BYTES,
    Patience,
    longest_wait_s,
)
from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served, until
from tests.fakes import FakeBackend, fake_engine

STALL_S = 30.0
RATE = PIECE_BYTES / STALL_S
steps = st.lists(st.integers(1, HIDDEN_BYTES), min_size=1, max_size=60)


def least_left_s(takes: list[tuple[float, int]]) -> float:
    """Return how little time was ever left to a client, of waits and of what was then taken."""
    patience, left = Patience(STALL_S), [STALL_S]
    for waited_s, taken in takes:
        left.append(patience.left_s - waited_s)
        patience.count(waited_s, taken)
    return min(left)


@given(steps, st.integers(0, 2**20), st.floats(1.0, 40.0))
def test_a_client_that_reads_at_the_least_rate_is_waited_for_in_whatever_steps_it_shows(
    shown: list[int], held: int, times: float
) -> None:
    # Its system takes what it can hold at once, then as much as was read, in steps.
    takes = [(0.0, held), *((one / (times * RATE), one) for one in shown)]
    takes = [(0.0, HIDDEN_BYTES), *takes]
    assert least_left_s(takes) >= -1e-6


@given(steps, st.floats(0.01, 0.5))
def test_a_client_that_reads_less_is_given_up_once_what_was_held_is_used_up(
    shown: list[int], share: float
) -> None:
    waits = [one / (share * RATE) for one in shown]
    late = [at for at in accumulate(waits) if at * (1 - share) > longest_wait_s(STALL_S)]
    takes = [(0.0, 10 * HIDDEN_BYTES), *zip(waits, shown, strict=True)]
    assert not late or least_left_s(takes) < 0


def test_a_client_that_reads_nothing_is_waited_for_as_long_as_its_system_may_hide_that_it_reads():
    patience = Patience(STALL_S)
    assert patience.left_s == STALL_S
    for _ in range(100):
        patience.count(0.0, PIECE_BYTES)
    assert patience.left_s == longest_wait_s(STALL_S)


@pytest.mark.parametrize("receive_bytes", [4096, 131_072])
def test_of_an_answer_that_is_not_read_the_system_holds_little_and_each_step_of_reading_shows(
    receive_bytes: int,
) -> None:
    speaking = FakeBackend(chunk_s=0.5)
    app = create_app(Settings(stall_timeout_s=600), fake_engine(speaking))
    text = "x" * 200  # 4.8 MB
    with served(app) as client, socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        reader.settimeout(60)
        place = client.base_url.host, client.base_url.port or 80
        reader.connect(place)
        body = httpx.Request("POST", "/", json={"input": text, "stream": True}).content
        reader.sendall(
            b"POST /tts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        engine = app.state.services.engine
        until(lambda: any(job.reader.paused_s for job in engine._queue.running))
        (job,) = engine._queue.running
        held = 0.0
        for _ in range(4):
            made, read = job.playback.audio_s, 0
            while job.playback.audio_s == made:  # what is read makes room for more, in steps
                read += len(reader.recv(16_384))
                assert read < 4 * (SEND_BYTES + 2 * receive_bytes) + 2**18
            until(lambda: job.reader.paused_s)
            held = max(held, read)
        assert held
