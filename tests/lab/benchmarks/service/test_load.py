"""What is spoken of a load."""

import httpx2
import pytest

from app.commands.bench.listeners import Figures, ReceivedSpeech, closed_loop, figures
from lab.benchmarks.harness.http_client import open_client
from lab.benchmarks.service import load


@pytest.mark.anyio
async def test_the_search_ends_at_the_last_load_that_was_smooth(monkeypatch: pytest.MonkeyPatch):
    async def three_and_a_half(_, streams: float, *rest: object) -> Figures:
        sound = b"\xff\x7f" * 24_000  # a second
        status = 200 if streams <= 3.5 else 503
        came = ReceivedSpeech(status, arrivals=((0.1, len(sound)),), sound=sound)
        return figures(f"{streams}", [came], 1.0)

    monkeypatch.setattr(load, "open_loop", three_and_a_half)
    best, tried = await load.search(httpx2.AsyncClient(), ["One."], 1.0)
    assert best == 3.5
    assert [row.load for row in tried] == ["1.0", "2.0", "3.0", "4.0", "3.5"]


@pytest.mark.slow
@pytest.mark.anyio
async def test_closed_and_open_loops_serve_everybody(toy_server: httpx2.Client):
    spoken = ["One.", "Two.", "Three."]
    async with open_client(str(toy_server.base_url)) as client:
        closed = await closed_loop(client, 2, spoken)
        open_ = await load.open_loop(client, 2.0, spoken, text_s=0.5)
    for row in (closed, open_):
        assert (row.requests, row.failed) == (3, 0)
        assert row.audio_a_second > 0
