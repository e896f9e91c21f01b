"""A speech over HTTP while it is made."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Literal

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api import audio
from app.api.answers import opening_headers
from app.api.recent import Failure, RecentSpeeches
from app.engine.errors import ReaderStalled, SpeechError
from app.engine.job import AudioChunk, SpeechJob, SpeechResult
from app.engine.ticket import SpeechStream

Container = Literal["wav", "pcm"]
MEDIA_TYPES: dict[Container, str] = {"wav": "audio/wav", "pcm": "audio/pcm"}

log = logging.getLogger(__name__)


class StreamedSpeech(Response):
    """An answer whose body is sound: one container, its head before the first chunk.

    What breaks after the first byte cuts the connection: the body's last piece is never sent, so
    that no client takes what it has for the whole. A client that leaves, or takes nothing for
    `stall_timeout_s`, ends the job. Either way `RecentSpeeches` tells what happened.
    """

    def __init__(
        self,
        job: SpeechJob,
        stream: SpeechStream,
        opening: Sequence[AudioChunk],
        recent: RecentSpeeches,
        *,
        container: Container,
        first_audio_s: float,
        stall_timeout_s: float,
    ) -> None:
        """Begin before the first byte.

        Args:
            job: What was asked for.
            stream: Its chunks but for those of ``opening``.
            opening: The first of them; at least one.
            recent: Where what becomes of it is kept.
            container: Of the sound.
            first_audio_s: Seconds from the request to the first chunk.
            stall_timeout_s: How long the client may take nothing.
        """
        self._job, self._stream, self._opening, self._recent = job, stream, opening, recent
        self._container = container
        self._stall_timeout_s = stall_timeout_s
        self._rate_hz = opening[0].sample_rate_hz
        self._samples = 0
        plan = stream.plan
        assert plan is not None  # there is sound
        headers = opening_headers(plan, self._rate_hz) | {
            "X-TTFA-Ms": f"{1000 * first_audio_s:.1f}",
            "X-Accel-Buffering": "no",  # nginx would hold the sound back otherwise
        }
        super().__init__(None, media_type=MEDIA_TYPES[container], headers=headers)
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
        """
        result = None
        try:
            await send({
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            })
            head = audio.wav_header(self._rate_hz) if self._container == "wav" else b""
            async for chunk in self._chunks():
                body, head = head + audio.pcm(chunk.samples), b""
                async with asyncio.timeout(self._stall_timeout_s):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                self._samples += len(chunk.samples)
                result = chunk.result
        except TimeoutError:
            raise ReaderStalled(f"nothing was read for {self._stall_timeout_s:g} s") from None
        assert result is not None  # the last chunk has it
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return result

    async def _chunks(self) -> AsyncIterator[AudioChunk]:
        for chunk in self._opening:
            yield chunk
        async for chunk in self._stream:
            yield chunk

    def _failure(self, error: SpeechError | None) -> Failure:
        frames = self._stream.progress.frames
        return Failure(error, self._stream.plan, frames, self._samples / self._rate_hz)


async def disconnected(receive: Receive) -> None:
    """Return when the client closes its connection; the body has been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass
