"""A streamed speech response."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.render_pool import RenderPool
from app.api.reports.recent import Failure, RecentSpeeches
from app.api.responses import EVENT_STREAM, opening_headers
from app.api.speech.collected import disconnected
from app.api.speech.framing import Framing
from app.audio.rendering import OutputOptions, StreamRenderer, split_portions
from app.engine.errors import ReaderStalled, SpeechError
from app.engine.job import AudioChunk, SpeechJob, SpeechResult
from app.engine.serving.running import SpeechStream

log = logging.getLogger(__name__)


class StreamedSpeech(Response):
    """A response that streams an audio file, or another shape around its bytes.

    An error after the first byte cuts the connection: the last chunk of the body is never sent, so
    no client takes a part for the whole. Shapes that can tell an error end with it instead. If the
    client disconnects, or `send` raises `ReaderStalled`, the job is cancelled. The outcome is
    stored in `RecentSpeeches` in any case.

    Args:
        likely_lufs: Expected loudness of the samples; None if unknown.
    """

    def __init__(
        self,
        job: SpeechJob,
        stream: SpeechStream,
        opening: Sequence[AudioChunk],
        recent: RecentSpeeches,
        *,
        output: OutputOptions,
        likely_lufs: float | None,
        render_pool: RenderPool,
        client: str,
        framing: Framing,
        first_audio_s: float,
    ) -> None:
        self._job, self._stream, self._opening, self._recent = job, stream, opening, recent
        self._framing = framing
        rate_hz = opening[0].sample_rate_hz
        self._instant = output.instant(rate_hz)
        self._render_pool, self._client, self._rate_hz = render_pool, client, rate_hz
        self._rendering = StreamRenderer(output, rate_hz, likely_lufs)
        self._audio_s = 0.0
        plan = stream.plan
        assert plan is not None  # known with the first audio
        headers = opening_headers(plan, output.rate_hz(rate_hz)) | {
            "X-TTFA-Ms": f"{1000 * first_audio_s:.1f}",
            "X-Accel-Buffering": "no",  # stops nginx from buffering the stream
        }
        if framing.media_type == EVENT_STREAM:
            headers["Cache-Control"] = "no-cache"
        super().__init__(None, media_type=framing.media_type, headers=headers)
        del self.headers["content-length"]

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(disconnected(receive))
        error: SpeechError | None = None
        result: SpeechResult | None = None
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                result = sending.result()
        except SpeechError as broken:
            error = broken
            log.warning("response %s: cut off (%s)", self._job.id, broken.code)
        finally:
            sending.cancel()
            leaving.cancel()
            await self._stream.aclose()
            self._recent.keep(self._job, result or self._failure(error))

    async def _send(self, send: Send) -> SpeechResult:
        """Send head and body."""
        await send({
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        })
        try:
            result = await self._send_audio(send)
        except ReaderStalled:
            raise
        except SpeechError as broken:
            if failed := self._framing.failed(broken):
                await self._send_body(send, failed)
                await self._send_body(send, b"", more=False)
            raise
        await self._send_part(send, self._framing.done(result, self._audio_s))
        await self._send_body(send, b"", more=False)
        return result

    async def _send_audio(self, send: Send) -> SpeechResult:
        """Render and send all chunks."""
        result = None
        async for chunk in self._chunks():
            await self._send_part(send, self._framing.before(chunk))
            for portion in split_portions(chunk.samples, self._rate_hz):
                await self._send_rendered(send, partial(self._rendering.push, portion))
            result = chunk.result
        await self._send_rendered(send, self._rendering.close)
        assert result is not None  # the last chunk has it
        return result

    async def _send_rendered(self, send: Send, render: Callable[[], bytes]) -> None:
        """Run a rendering step and send its bytes, if any."""
        part = render() if self._instant else await self._render_pool.run(self._client, render)
        if part:
            await self._send_part(send, self._framing.sound(part))
        self._audio_s = self._rendering.audio_s

    async def _send_part(self, send: Send, part: bytes) -> None:
        """Send a part of the body, if there is one."""
        if part:
            await self._send_body(send, part)

    async def _send_body(self, send: Send, body: bytes, *, more: bool = True) -> None:
        """Send a part of the body."""
        await send({"type": "http.response.body", "body": body, "more_body": more})

    async def _chunks(self) -> AsyncIterator[AudioChunk]:
        for chunk in self._opening:
            yield chunk
        async for chunk in self._stream:
            yield chunk

    def _failure(self, error: SpeechError | None) -> Failure:
        stream = self._stream
        return Failure.of(self._job, stream.plan, error, stream.progress.frames, self._audio_s)
