"""A speech is heard alike over HTTP and a WebSocket."""

from typing import Any

import httpx2
import pytest

from app.commands.bench.listeners import receive
from lab.benchmarks.harness.http_client import codes_sha256, open_client
from lab.benchmarks.harness.websocket_client import receive_live


@pytest.mark.slow
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
