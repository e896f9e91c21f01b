"""Large inputs that are refused cost their sender time, at every door."""

import asyncio
import json
import socket
from collections.abc import Callable, Coroutine

import httpx
import pytest
from websockets.sync.client import connect

from app.api.middleware import pace as pacing
from app.api.middleware import send as sending
from app.api.realtime import speech
from app.compat.wyoming import events
from tests.app.tools.live_client import serving, url_of
from tests.app.tools.serving import free_port
from tests.fakes import FakeBackend

LARGE = pacing.PACED_BYTES + 1


async def waits(pause: Callable[[int], Coroutine[None, None, None]], size_bytes: int) -> bool:
    """Return whether a pause for a size does not end at once."""
    waiting = asyncio.create_task(pause(size_bytes))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return waiting.cancel()


@pytest.mark.parametrize(
    ("pause", "size_bytes", "wanted"),
    [
        (pacing.pace, pacing.PACED_BYTES, False),
        (pacing.pace, LARGE, True),
        (pacing.pace_refusal, pacing.LONG_BYTES, False),
        (pacing.pace_refusal, pacing.LONG_BYTES + 1, True),
        (pacing.pace_refusal, pacing.PACED_BYTES, True),
        (pacing.pace_refusal, LARGE, True),
    ],
)
def test_a_message_larger_than_a_text_waits_and_so_does_the_refusal_of_a_long_text(
    pause, size_bytes, wanted
) -> None:
    assert asyncio.run(waits(pause, size_bytes)) is wanted


def over_http(client: httpx.Client, wyoming_port: int) -> None:
    body = json.dumps({"utterances": [0] * LARGE})
    headers = {"content-type": "application/json"}
    assert client.post("/tts", content=body, headers=headers).status_code == 422


def over_the_socket(client: httpx.Client, wyoming_port: int) -> None:
    with connect(url_of(client)) as session:
        session.recv()
        session.send("[" * LARGE)
        assert json.loads(session.recv())["type"] == "error"


def over_elevenlabs(client: httpx.Client, wyoming_port: int) -> None:
    with connect(url_of(client, "/v1/text-to-speech/default/stream-input")) as session:
        session.send("[" * LARGE)
        session.recv()


def over_wyoming(client: httpx.Client, wyoming_port: int) -> None:
    head = json.dumps({"type": "describe", "data_length": LARGE}).encode()
    with socket.create_connection(("127.0.0.1", wyoming_port), 20) as peer:
        peer.sendall(head + b"\n" + b"[" * LARGE)
        assert b'"error"' in peer.makefile("rb").readline()


@pytest.mark.parametrize("send", [over_http, over_the_socket, over_elevenlabs, over_wyoming])
def test_every_door_paces_what_it_refuses(
    monkeypatch, send: Callable[[httpx.Client, int], None]
) -> None:
    paced: list[int] = []

    async def pace(size_bytes: int) -> None:
        paced.append(size_bytes)

    monkeypatch.setattr(sending, "pace_refusal", pace)
    for module in (speech, events):
        monkeypatch.setattr(module, "pace", pace)
    port = free_port()
    with serving(FakeBackend(0.1), wyoming_port=port) as (client, _):
        assert client.post("/tts", json={"input": "Hi."}).status_code == 200
        assert not [size for size in paced if size >= LARGE]
        send(client, port)
    assert [size for size in paced if size >= LARGE]
