"""What the engine gave of a speech before anything of it is sent."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import aclosing
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from fastapi import Request, Response

from app.api.answers import result_headers
from app.api.speech.streaming import disconnected
from app.api.speech.workshop import Workshop
from app.audio.formats import MEDIA_TYPES
from app.audio.rendering import OutputOptions, rendered_in_steps
from app.engine.job import AudioChunk, SpeechResult
from app.engine.serving.ticket import SpeechStream

T = TypeVar("T")


class Heard(NamedTuple):
    """Some chunks of a speech, from its beginning.

    Args:
        chunks: At least one; the last of a whole speech has its result.
        first_audio_s: Seconds from the request to the first chunk that has sound, or to the end of
            a speech without any.
    """

    chunks: list[AudioChunk]
    first_audio_s: float

    @property
    def result(self) -> SpeechResult:
        """What became of the speech, where it is whole."""
        result = self.chunks[-1].result
        assert result is not None
        return result


async def whole(stream: SpeechStream, came_s: float) -> Heard:
    """Read a speech to its end.

    Args:
        stream: Its chunks.
        came_s: When it was asked for, by the monotonic clock.
    """
    async with aclosing(stream):
        heard = await opening(stream, came_s)
        heard.chunks.extend([chunk async for chunk in stream])
        return heard


async def opening(stream: SpeechStream, came_s: float) -> Heard:
    """Read a speech up to the first chunk that has sound.

    Args:
        stream: Its chunks.
        came_s: When it was asked for, by the monotonic clock.
    """
    chunks = []
    async for chunk in stream:
        chunks.append(chunk)
        if len(chunk.samples):
            break
    return Heard(chunks, monotonic() - came_s)


async def whole_response(
    heard: Heard, manner: OutputOptions, workshop: Workshop, who: str
) -> Response:
    """Return the answer that is a whole speech, rendered step by step; cancelled, it stops.

    Args:
        heard: The speech; its samples are let go of as they are rendered.
        manner: How it is to sound.
        workshop: Where it is rendered.
        who: Whose it is.
    """
    rate_hz, result = heard.chunks[0].sample_rate_hz, heard.result
    chunks = deque(chunk.samples for chunk in heard.chunks)
    heard.chunks.clear()
    steps = rendered_in_steps((chunks.popleft() for _ in range(len(chunks))), rate_hz, manner)
    parts: list[bytes] = []
    samples = 0
    while (step := await workshop.run(who, partial(next, steps, None))) is not None:
        parts.append(step[0])
        samples += step[1]
    headers = result_headers(result, rate_hz, samples / rate_hz, heard.first_audio_s)
    return Response(b"".join(parts), media_type=MEDIA_TYPES[manner.form], headers=headers)


async def unless_client_leaves(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what the work gives, or cancel it and return None once the client is gone."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(disconnected(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()
