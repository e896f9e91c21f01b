"""Requests as Pipecat, LiveKit and Vercel's AI SDK send them, read as they read the answers."""

import asyncio
import json
from base64 import b64decode
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from tests.app.tools.decoding import decoded
from tests.clients.conftest import SEED

TEXT = "Hi."
INSTRUCTIONS = "Speak like a pirate."  # which all of them pass on


async def pipecat(server: httpx.Client, voice: str) -> bytes:
    """Ask as Pipecat does; it plays samples of 16 bits at 24 kHz."""
    sound = b""
    async with (
        openai.AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key="none") as client,
        client.audio.speech.with_streaming_response.create(
            input=TEXT,
            model="gpt-4o-mini-tts",
            voice=voice,
            response_format="pcm",
            instructions=INSTRUCTIONS,
            extra_body={"seed": SEED},
        ) as answer,
    ):
        assert answer.status_code == 200
        async for chunk in answer.iter_bytes(4800):
            sound += chunk
    return sound


@pytest.mark.parametrize("voice", ["alloy", "marin"])
def test_pipecat_which_knows_the_names_of_openai_s_voices_alone(
    server: httpx.Client, voice: str
) -> None:
    sound = asyncio.run(pipecat(server, voice))
    assert len(sound) % 2 == 0
    assert np.frombuffer(sound, "<i2").any()


def livekit(server: httpx.Client, **fields: Any) -> tuple[str, bytes]:
    """Ask as LiveKit does; it tells events from sound by the type of the answer."""
    body = {"input": TEXT, "voice": "ash", "response_format": "mp3", "speed": 1.0}
    body |= {"instructions": INSTRUCTIONS, "seed": SEED} | fields
    with server.stream("POST", "/v1/audio/speech", json=body) as answer:
        assert answer.status_code == 200
        kind = answer.headers["content-type"].partition(";")[0]
        if kind != "text/event-stream":
            return kind, answer.read()
        sound = b""
        for line in answer.iter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                event = json.loads(line.removeprefix("data: "))
                sound += b64decode(event.get("audio") or event.get("delta") or "")
        return kind, sound


def test_livekit_with_events(server: httpx.Client) -> None:
    kind, sound = livekit(server, model="gpt-4o-mini-tts", stream_format="sse")
    assert kind == "text/event-stream"
    assert decoded(sound)[0].any()


@pytest.mark.parametrize("model", ["tts-1", "tts-1-hd"])
def test_livekit_without_events(server: httpx.Client, model: str) -> None:
    kind, sound = livekit(server, model=model)
    assert kind == "audio/mpeg"
    assert decoded(sound)[0].any()


@pytest.mark.parametrize("path", ["/v1", "/v1/"])
def test_livekit_warms_its_connection_up(server: httpx.Client, path: str) -> None:
    assert server.get(path).status_code == 404  # any answer will do


@pytest.mark.parametrize(("form", "kind"), [("mp3", "audio/mpeg"), ("wav", "audio/wav")])
def test_vercel_s_sdk(server: httpx.Client, form: str, kind: str) -> None:
    body: dict[str, Any] = {"model": "gpt-4o-mini-tts", "voice": "alloy", "response_format": form}
    body |= {"input": TEXT} | {"instructions": INSTRUCTIONS, "speed": 1.2, "seed": SEED}
    answer = server.post("/v1/audio/speech", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert answer.headers["x-ignored"] == "instructions"
    assert decoded(answer.content)[0].any()
