"""Responses with a speech, whole or streamed."""

import asyncio
import logging
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Coroutine,
    Sequence,
)
from contextlib import aclosing
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from fastapi import Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.api.errors import CLIENT_CLOSED
from app.api.history.report import AskedSpeech, Failure
from app.api.middleware.access.clients import client_of
from app.api.schemas import (
    EVENT_STREAM,
)
from app.api.services import services_of
from app.api.speech.body_formats import BodyFormat
from app.api.speech.headers import opening_headers, result_headers
from app.audio.delivery import FileOptions
from app.audio.rendering import Renderer
from app.engine.admission.durations import stretched
from app.engine.core import AudioChunk, Plan, SpeechResult
from app.engine.errors import EngineBusy, SpeechError
from app.engine.serving.running import SpeechStream

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class Answer:
    """How a speech is sent in answer to a request."""

    output: FileOptions  # once it is known

    def __init__(self, request: Request, body_format: BodyFormat, came_s: float) -> None:
        self.request = request
        self.body_format = body_format
        self._came_s = came_s
        self.client = client_of(request)
        self.services = services_of(request)
        self.first_audio_s = 0.0  # from the request to the first samples, or to the end

    async def collected(self, stream: SpeechStream, *, whole: bool) -> list[AudioChunk] | None:
        """Return all chunks, or those up to the first with samples; None if the client leaves."""
        # However the request ends, what is not done is then cancelled.
        self.request.state.held.callback(stream.leave)
        return await self.unless_client_leaves(self._collected(stream, whole=whole))

    async def _collected(self, stream: SpeechStream, *, whole: bool) -> list[AudioChunk]:
        chunks: list[AudioChunk] = []
        has_sound = False
        async for chunk in stream:
            if whole:
                self._hold(len(chunk.samples))
            chunks.append(chunk)
            if not has_sound:
                self.first_audio_s = monotonic() - self._came_s
            has_sound = has_sound or len(chunk.samples) > 0
            if has_sound and not whole:
                break
        return chunks

    def _hold(self, samples: int) -> None:
        """Count samples until the answer was taken; fail if too many wait to be sent."""
        places = self.services.limits.whole_samples
        count = round(stretched(samples, self.output.speed))
        if not places.free(self.client, count):
            raise EngineBusy(
                "too much audio waits to be sent, or too much of yours", retry_after_s=5
            )
        places.take(self.client, count)
        self.request.state.held.callback(places.give_back, self.client, count)

    async def whole(self, chunks: list[AudioChunk]) -> Response:
        """Return the response with a whole speech; chunks are removed as they are rendered."""
        answer = await self.unless_client_leaves(self._rendered(chunks))
        return Response(status_code=CLIENT_CLOSED) if answer is None else answer

    async def _rendered(self, chunks: list[AudioChunk]) -> Response:
        rate_hz = chunks[0].sample_rate_hz
        result = result_of(chunks)
        rendering = self.renderer(rate_hz, whole=True)
        samples = deque(chunk.samples for chunk in chunks)
        chunks.clear()
        parts: list[bytes] = []
        while samples:
            parts += [part async for part in rendering.push(samples.popleft())]
        parts.append(await rendering.close())
        audio_s = rendering.audio_s
        framed = partial(self.body_format.whole, b"".join(parts), result, audio_s)
        body = await self.services.render_pool.run(self.client, framed)
        headers = result_headers(result, self.output.rate_hz(rate_hz), audio_s, self.first_audio_s)
        return Response(body, media_type=self.body_format.media_type, headers=headers)

    def renderer(self, rate_hz: int, *, plan: Plan | None = None, whole: bool = False) -> Renderer:
        """Return what renders a speech of a sample rate; a streamed one has a plan."""
        likely_lufs = self.services.engine.voices.likely_lufs(plan.voice) if plan else None
        pool = self.services.render_pool, self.client
        return Renderer(pool, self.output, rate_hz, likely_lufs, whole=whole)

    async def unless_client_leaves(self, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Return the result of a coroutine, or cancel it and return None if the client leaves."""
        working = asyncio.create_task(work)
        leaving = asyncio.create_task(_disconnected(self.request.receive))
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            working.cancel()
            leaving.cancel()


def result_of(chunks: Sequence[AudioChunk]) -> SpeechResult:
    """Return the result of a whole speech."""
    result = chunks[-1].result
    assert result is not None  # the last chunk has it
    return result


class StreamedSpeech(StreamingResponse):
    """A response that streams an audio file, or another shape around its bytes.

    An error after the first byte cuts the connection: the last chunk of the body is never sent, so
    no client takes a part for the whole. Shapes that can tell an error end with it instead. If the
    client disconnects, or `send` raises `ReaderStalled`, the job is cancelled. The outcome is
    stored in `RecentSpeeches` in any case. ``opening`` are the chunks up to the first with samples.
    """

    def __init__(
        self,
        answer: Answer,
        asked: AskedSpeech,
        stream: SpeechStream,
        opening: Sequence[AudioChunk],
    ) -> None:
        self._asked = asked
        self._stream = stream
        self._opening = opening
        self._body_format = answer.body_format
        rate_hz = opening[0].sample_rate_hz
        plan = stream.plan
        assert plan is not None  # known with the first audio
        self._rendering = answer.renderer(rate_hz, plan=plan)
        self._answer = answer
        self._audio_s = 0.0
        self._result: SpeechResult | None = None
        self._error: SpeechError | None = None
        headers = opening_headers(plan, plan.voice.name, answer.output.rate_hz(rate_hz)) | {
            "X-TTFA-Ms": f"{1000 * answer.first_audio_s:.1f}",
            "X-Accel-Buffering": "no",  # stops nginx from buffering the stream
        }
        media_type = self._body_format.media_type
        if media_type == EVENT_STREAM:
            headers["Cache-Control"] = "no-cache"
        self._body = self._parts_or_error()
        super().__init__(self._body, media_type=media_type, headers=headers)

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        """Send the response."""
        result: SpeechResult | None = None
        try:
            result = await self._answer.unless_client_leaves(self._send(send))
        except SpeechError as broken:
            self._error = broken
        finally:
            if self._error is not None:
                log.warning("response %s: cut off (%s)", self._asked.job.id, self._error.code)
            self._answer.services.recent.keep(self._asked, result or self._failure())

    async def _send(self, send: Send) -> SpeechResult | None:
        async with aclosing(self._body):
            await self.stream_response(send)
        return None if self._error else self._result

    async def _parts_or_error(self) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(self._parts()) as parts:
                async for part in parts:
                    if part:
                        yield part
                    self._audio_s = self._rendering.audio_s
        except SpeechError as broken:
            self._error = broken
            if not (failed := self._body_format.failed(broken)):
                raise
            yield failed

    async def _parts(self) -> AsyncGenerator[bytes]:
        """Yield the parts of the body, some of them empty."""
        async for chunk in self._chunks():
            self._result = chunk.result
            yield self._body_format.before(chunk)
            async for part in self._rendering.push(chunk.samples):
                yield self._framed(part)
        yield self._framed(await self._rendering.close())
        assert self._result is not None  # the last chunk has it
        yield self._body_format.done(self._result, self._audio_s)

    def _framed(self, part: bytes) -> bytes:
        return self._body_format.sound(part) if part else b""

    async def _chunks(self) -> AsyncIterator[AudioChunk]:
        for chunk in self._opening:
            yield chunk
        async for chunk in self._stream:
            yield chunk

    def _failure(self) -> Failure:
        stream = self._stream
        error = self._error
        return Failure.of(
            self._asked.job, stream.plan, error, stream.progress.frames, self._audio_s
        )


async def _disconnected(receive: Receive) -> None:
    """Return when the client disconnects. The request body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
