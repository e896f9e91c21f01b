"""A speech over HTTP while it is made."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.answers import opening_headers, usage_of
from app.api.errors import speech_error_detail
from app.api.reports.recent import Failure, RecentSpeeches
from app.api.speech.events import EVENT_STREAM, SpeechAudioDone, SpeechAudioError, delta, line
from app.api.speech.workshop import Workshop
from app.audio.formats import MEDIA_TYPES
from app.audio.rendering import OutputOptions, Rendering, in_portions
from app.engine.errors import ReaderStalled, SpeechError
from app.engine.job import AudioChunk, SpeechJob, SpeechResult
from app.engine.serving.ticket import SpeechStream

log = logging.getLogger(__name__)


class StreamedSpeech(Response):
    """An answer whose body is sound: one file, its head before the first chunk, or its events.

    What breaks after the first byte cuts the connection: the body's last piece is never sent, so
    that no client takes what it has for the whole. Events end with one that says so instead. A
    client that leaves, or takes nothing for `stall_timeout_s`, ends the job. In any case
    `RecentSpeeches` tells what happened.
    """

    def __init__(
        self,
        job: SpeechJob,
        stream: SpeechStream,
        opening: Sequence[AudioChunk],
        recent: RecentSpeeches,
        *,
        manner: OutputOptions,
        likely_lufs: float | None,
        workshop: Workshop,
        who: str,
        events: bool,
        first_audio_s: float,
        stall_timeout_s: float,
    ) -> None:
        """Begin before the first byte.

        Args:
            job: What was asked for.
            stream: Its chunks but for those of ``opening``.
            opening: The first of them; at least one.
            recent: Where what becomes of it is kept.
            manner: How it is to sound.
            likely_lufs: How loud it will likely be spoken; None where nobody knows.
            workshop: Where it is rendered.
            who: Whose it is.
            events: Whether the bytes go as events.
            first_audio_s: Seconds from the request to the first chunk.
            stall_timeout_s: How long the client may take nothing.
        """
        self._job, self._stream, self._opening, self._recent = job, stream, opening, recent
        self._stall_timeout_s, self._events = stall_timeout_s, events
        rate_hz = opening[0].sample_rate_hz
        self._instant = manner.instant
        self._workshop, self._who, self._rate_hz = workshop, who, rate_hz
        self._rendering = Rendering(manner, rate_hz, likely_lufs)
        self._audio_s = 0.0
        plan = stream.plan
        assert plan is not None  # there is sound
        headers = opening_headers(plan, rate_hz) | {
            "X-TTFA-Ms": f"{1000 * first_audio_s:.1f}",
            "X-Accel-Buffering": "no",  # nginx would hold the sound back otherwise
        }
        if events:
            headers["Cache-Control"] = "no-cache"
        media_type = EVENT_STREAM if events else MEDIA_TYPES[manner.form]
        super().__init__(None, media_type=media_type, headers=headers)
        del self.headers["content-length"]

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
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
            log.warning("response %s: cut (%s)", self._job.id, broken.code)
        finally:
            sending.cancel()
            leaving.cancel()
            await self._stream.aclose()
            self._recent.keep(self._job, result or self._failure(error))

    async def _send(self, send: Send) -> SpeechResult:
        """Send all; what is not sent to the end was cut.

        Raises:
            ReaderStalled: The client takes nothing.
            SpeechError: It broke.
        """
        await send({
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        })
        try:
            result = await self._send_sound(send)
        except ReaderStalled:
            raise
        except SpeechError as broken:
            if self._events:
                failed = SpeechAudioError(error=speech_error_detail(broken))
                await self._give(send, line(failed))
                await self._give(send, b"", more=False)
            raise
        if self._events:
            done = SpeechAudioDone.of(result, self._audio_s, usage_of(result))
            await self._give(send, line(done))
        await self._give(send, b"", more=False)
        return result

    async def _send_sound(self, send: Send) -> SpeechResult:
        """Send the bytes of the file.

        Raises:
            SpeechError: It broke, or the client takes nothing.
        """
        result = None
        async for chunk in self._chunks():
            for portion in in_portions(chunk.samples, self._rate_hz):
                await self._send_bytes(send, partial(self._rendering.push, portion))
            result = chunk.result
        await self._send_bytes(send, self._rendering.close)
        assert result is not None  # the last chunk has it
        return result

    async def _send_bytes(self, send: Send, render: Callable[[], bytes]) -> None:
        """Send what the file grows by, if it does.

        Raises:
            ReaderStalled: The client takes nothing.
        """
        sound = render() if self._instant else await self._workshop.run(self._who, render)
        if sound:
            await self._give(send, line(delta(sound)) if self._events else sound)
        self._audio_s = self._rendering.audio_s

    async def _give(self, send: Send, body: bytes, *, more: bool = True) -> None:
        """Send a piece of the body.

        Raises:
            ReaderStalled: The client takes nothing.
        """
        try:
            async with asyncio.timeout(self._stall_timeout_s):
                await send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise ReaderStalled(f"nothing was read for {self._stall_timeout_s:g} s") from None

    async def _chunks(self) -> AsyncIterator[AudioChunk]:
        for chunk in self._opening:
            yield chunk
        async for chunk in self._stream:
            yield chunk

    def _failure(self, error: SpeechError | None) -> Failure:
        return Failure(error, self._stream.plan, self._stream.progress.frames, self._audio_s)


async def disconnected(receive: Receive) -> None:
    """Return when the client closes its connection; the body has been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass
