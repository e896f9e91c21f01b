"""Chunks of a speech collected before a response is sent: all of them, or up to the first audio."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from fastapi import Request, Response
from starlette.types import Receive

from app.api.gate.admission import client_of
from app.api.render_pool import RenderPool
from app.api.responses import result_headers
from app.api.speech.framing import Framing
from app.audio.rendering import OutputOptions, render_in_steps
from app.engine.admission import stretched
from app.engine.errors import EngineBusy
from app.engine.job import AudioChunk, SpeechResult
from app.engine.serving.fairness import Places
from app.engine.serving.running import SpeechStream

T = TypeVar("T")


class CollectedSpeech(NamedTuple):
    """The first chunks of a speech, or all of them.

    Args:
        chunks: At least one; the last of a whole speech has its result.
        first_audio_s: Seconds from the request to the first chunk with samples, or to the end if
            there is none.
    """

    chunks: list[AudioChunk]
    first_audio_s: float

    @property
    def result(self) -> SpeechResult:
        """The result of a whole speech."""
        result = self.chunks[-1].result
        assert result is not None
        return result


WHOLE_SPEECHES = 5
"""Whole speeches of the greatest length whose samples may wait at once to be sent."""


async def held_chunks(
    stream: SpeechStream, request: Request, speed: float
) -> AsyncGenerator[AudioChunk]:
    """Yield chunks of a speech that is sent whole; count their samples until the answer was taken.

    Raises:
        EngineBusy: Too many samples wait to be sent, or too many of the client's.
    """
    places: Places = request.app.state.whole_samples
    client, held = client_of(request), request.state.held
    async with aclosing(stream):
        async for chunk in stream:
            samples = round(stretched(len(chunk.samples), speed))
            if not places.free(client, samples):
                raise EngineBusy(
                    "too much audio waits to be sent, or too much of yours", retry_after_s=5
                )
            places.take(client, samples)
            held.callback(places.give_back, client, samples)
            yield chunk


async def collect_all(stream: AsyncGenerator[AudioChunk], came_s: float) -> CollectedSpeech:
    """Collect a speech to its end.

    Args:
        came_s: Monotonic time of the request.
    """
    async with aclosing(stream):
        speech = await collect_opening(stream, came_s)
        speech.chunks.extend([chunk async for chunk in stream])
        return speech


async def collect_opening(stream: AsyncIterator[AudioChunk], came_s: float) -> CollectedSpeech:
    """Collect a speech up to its first chunk with samples.

    Args:
        came_s: Monotonic time of the request.
    """
    chunks = []
    async for chunk in stream:
        chunks.append(chunk)
        if len(chunk.samples):
            break
    return CollectedSpeech(chunks, monotonic() - came_s)


async def rendered_response(
    speech: CollectedSpeech,
    output: OutputOptions,
    framing: Framing,
    render_pool: RenderPool,
    client: str,
) -> Response:
    """Render a whole speech step by step and return the response; it may be cancelled.

    Args:
        speech: The speech; its chunks are removed as they are rendered, to free memory.
        output: Format, speed and loudness.
        framing: Shape of the body.
        render_pool: Threads for rendering.
        client: Whose queue of ``render_pool`` is used.
    """
    rate_hz, result = speech.chunks[0].sample_rate_hz, speech.result
    chunks = deque(chunk.samples for chunk in speech.chunks)
    speech.chunks.clear()
    steps = render_in_steps((chunks.popleft() for _ in range(len(chunks))), rate_hz, output)
    parts: list[bytes] = []
    samples = 0
    while (step := await render_pool.run(client, partial(next, steps, None))) is not None:
        parts.append(step[0])
        samples += step[1]
    rate_hz = output.rate_hz(rate_hz)
    audio_s = samples / rate_hz
    framed = partial(framing.whole, b"".join(parts), result, audio_s)
    body = await render_pool.run(client, framed)
    headers = result_headers(result, rate_hz, audio_s, speech.first_audio_s)
    return Response(body, media_type=framing.media_type, headers=headers)


async def unless_client_leaves(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of a coroutine, or cancel it and return None if the client disconnects."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(disconnected(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()


async def disconnected(receive: Receive) -> None:
    """Return when the client disconnects. The request body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
