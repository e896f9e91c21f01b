"""Responses with a speech: the shape of their body, whole or streamed, and their headers."""

import asyncio
import json
import logging
from base64 import b64encode
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

import numpy as np
from fastapi import Request, Response
from pydantic_core import to_json
from safetensors.numpy import save
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.api.errors import CLIENT_CLOSED, speech_error_detail
from app.api.history.report import AskedSpeech, Failure
from app.api.history.writer import warnings_for
from app.api.middleware.access.clients import client_of
from app.api.schemas import (
    EVENT_STREAM,
    NDJSON,
    SAFETENSORS,
    SpeechRequest,
    Usage,
    message,
)
from app.api.services import services_of
from app.audio.formats import MEDIA_TYPES
from app.audio.rendering import FileOptions, Renderer
from app.engine.admission.durations import stretched
from app.engine.core import AudioChunk, Plan, SpeechJob, SpeechResult
from app.engine.errors import EngineBusy, InvalidRequest, SpeechError
from app.engine.interface import ModelInfo
from app.engine.results import Codes, UtteranceCodes
from app.engine.serving.running import SpeechStream
from samplers.knobs.features import idle_knobs

log = logging.getLogger(__name__)

_T = TypeVar("_T")
AnyResponse = TypeVar("AnyResponse", bound=Response)

_JSON: Final = "application/json"

_MOST_LISTED: Final = 20  # of what was left out, in a header


class BodyFormat:
    """The file as it is; the base of other shapes. One object serves one response."""

    def __init__(self, media_type: str) -> None:
        self.media_type = media_type

    def before(self, chunk: AudioChunk) -> bytes:  # noqa: ARG002
        """Return what is sent before the sound of a chunk."""
        return b""

    def sound(self, part: bytes) -> bytes:
        """Return the next bytes of the file, in this shape."""
        return part

    def done(self, result: SpeechResult, audio_s: float) -> bytes:  # noqa: ARG002
        """Return the end of a speech that succeeded, with so many seconds of audio sent."""
        return b""

    def failed(self, error: SpeechError) -> bytes:  # noqa: ARG002
        """Return the end of a speech that failed; if empty, the connection is cut off instead."""
        return b""

    def whole(self, file: bytes, result: SpeechResult, audio_s: float) -> bytes:
        """Return the body with a complete speech, a file with so many seconds of audio."""
        return self.sound(file) + self.done(result, audio_s)


class Events(BodyFormat):
    """Server-sent events with the bytes of the file and the times of words."""

    def __init__(self, text: str, speed: float, *, lines: bool = False) -> None:
        super().__init__(NDJSON if lines else EVENT_STREAM)
        self._text = text
        self._speed = speed
        self._lines = lines

    def event(self, kind: str, **fields: Any) -> bytes:
        """Return an event as it is sent; see `message`."""
        content = message(kind, self._speed, **fields)
        return content + b"\n" if self._lines else b"data: " + content + b"\n\n"

    def before(self, chunk: AudioChunk) -> bytes:
        """Return the event with the words of a chunk, if it has any."""
        return self.event("speech.timestamps", words=chunk.words) if chunk.words else b""

    def sound(self, part: bytes) -> bytes:
        """Return the event with the next bytes of the file."""
        return self.event("speech.audio.delta", audio=b64encode(part).decode())

    def done(self, result: SpeechResult, audio_s: float) -> bytes:
        """Return the last event of a speech that succeeded; see `BodyFormat.done`."""
        return self.event(
            "speech.audio.done",
            usage=Usage.of(result),
            response_id=result.job_id,
            finish_reason=result.finish_reason,
            seed=result.seed,
            codes_sha256=result.codes_sha256,
            audio_s=round(audio_s, 6),
            timings=result.timings,
            warnings=warnings_for(self._text, result),
            left_out=result.left_out,
            utterances=result.utterances,
        )

    def failed(self, error: SpeechError) -> bytes:
        """Return the last event of a speech that failed."""
        return self.event("speech.audio.error", error=speech_error_detail(error))


class WholeCodes(BodyFormat):
    """The codes of a whole speech, as JSON or as tensors, without its file."""

    def __init__(self, info: ModelInfo, *, tensors: bool) -> None:
        super().__init__(SAFETENSORS if tensors else _JSON)
        self._info = info

    def whole(self, file: bytes, result: SpeechResult, audio_s: float) -> bytes:  # noqa: ARG002
        """Return the codes; see `codes_body` and `BodyFormat.whole`."""
        codes = [one.codes for one in result.utterances]
        hashes = {"model_sha256": self._info.sha256, "codes_sha256": result.codes_sha256}
        fields = {"utterances": [one.tolist() for one in codes]}
        return codes_body(self.media_type, hashes | rates_of(self._info), codes, fields)


class CodeEvents(Events):
    """Events with codes in place of the file, as server-sent events or a JSON object a line."""

    def before(self, chunk: AudioChunk) -> bytes:
        """Return the events with the words and the codes of a chunk."""
        return super().before(chunk) + b"".join(map(self._delta, chunk.codes))

    def sound(self, part: bytes) -> bytes:  # noqa: ARG002
        """Return nothing."""
        return b""

    def whole(self, file: bytes, result: SpeechResult, audio_s: float) -> bytes:  # noqa: ARG002
        """Return an event for each utterance with codes, and the last; see `BodyFormat.whole`."""
        every = (UtteranceCodes(number, one.codes) for number, one in enumerate(result.utterances))
        deltas = b"".join(self._delta(one) for one in every if len(one.codes))
        return deltas + self.done(result, audio_s)

    def _delta(self, piece: UtteranceCodes) -> bytes:
        codes = piece.codes.tolist()
        return self.event("speech.codes.delta", utterance=piece.utterance, codes=codes)


def body_format_of(wanted: SpeechRequest, accept: str, info: ModelInfo) -> BodyFormat:
    """Return the shape that a request and its header `Accept` ask for.

    Raises InvalidRequest if it asks for a stream of tensors.
    """
    if wanted.response_format != "codes":
        if wanted.stream_format == "sse":
            return Events(wanted.input, wanted.speed)
        return BodyFormat(MEDIA_TYPES[wanted.response_format])
    tensors = SAFETENSORS in accept
    if not wanted.streamed:
        return WholeCodes(info, tensors=tensors)
    if tensors:
        raise InvalidRequest(
            "tensors are sent whole: do not stream, or accept JSON",
            param="stream" if wanted.stream else "stream_format",
        )
    return CodeEvents(wanted.input, wanted.speed, lines=wanted.stream_format == "audio")


def codes_body(
    media_type: str, notes: Mapping[str, str], codes: Sequence[Codes], fields: Mapping[str, Any]
) -> bytes:
    """Return codes ``[T, K]`` of each utterance as safetensors, `0`, `1` and so on, or as JSON.

    ``notes`` are metadata of the tensors, or stand in the JSON before ``fields`` with the codes.
    """
    if media_type == SAFETENSORS:
        tensors = {str(number): np.ascontiguousarray(one) for number, one in enumerate(codes)}
        return save(tensors, dict(notes))
    return to_json({**notes, **fields})


def rates_of(info: ModelInfo) -> dict[str, str]:
    """Return the rates of codes and sound, as text, as safetensors have it."""
    return {
        "frame_rate_hz": f"{info.frame_rate_hz:g}",
        "sample_rate_hz": str(info.sample_rate_hz),
    }


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
        heard = False
        async for chunk in stream:
            if whole:
                self._hold(len(chunk.samples))
            chunks.append(chunk)
            if not heard:
                self.first_audio_s = monotonic() - self._came_s
            heard = heard or len(chunk.samples) > 0
            if heard and not whole:
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


def opening_headers(speech: Plan | SpeechResult, voice: str, sample_rate_hz: int) -> dict[str, str]:
    """Return the headers that are known when the first audio is: of a streamed response."""
    return {
        "X-Seed": str(speech.seed),
        "X-Preset": speech.params.preset,
        "X-Voice": voice,
        "X-NAR": speech.nar,
        "X-Decoder": speech.decoder,
        "X-Sample-Rate": str(sample_rate_hz),
    }


def result_headers(
    result: SpeechResult, sample_rate_hz: int, audio_s: float, first_audio_s: float
) -> dict[str, str]:
    """Return the headers of a whole response; `first_audio_s` is counted from the request."""
    times = result.timings
    usage = Usage.of(result)
    stages = {
        "queue": times.queue_s,
        "text": times.text_s,
        "ar": times.ar_s,
        "nar": times.nar_s,
        "codec": times.codec_s,
        "total": times.total_s,
    }
    return opening_headers(result, result.voice, sample_rate_hz) | {
        "X-Finish-Reason": result.finish_reason,
        "X-Backtracks": str(result.backtracks),
        "X-Codes-SHA256": result.codes_sha256,
        "X-Frames": str(result.frames),
        "X-Audio-Ms": f"{1000 * audio_s:.0f}",
        "X-Queue-Ms": f"{1000 * times.queue_s:.1f}",
        "X-TTFA-Ms": f"{1000 * first_audio_s:.1f}",
        "X-RTF": f"{result.real_time_factor:.3f}",
        "X-Prompt-Tokens": str(usage.input_tokens),
        "X-Completion-Tokens": str(usage.output_tokens),
        "Server-Timing": ", ".join(f"{n};dur={1000 * s:.1f}" for n, s in stages.items()),
    }


def add_ignored_header(answer: AnyResponse, fields: Collection[str]) -> AnyResponse:
    """Return a response whose header names the request's fields that did nothing, if any."""
    named = [*filter(None, [answer.headers.get("X-Ignored")]), *fields]
    if named:
        answer.headers["X-Ignored"] = ", ".join(named)
    return answer


def add_warning_headers(
    answer: AnyResponse, job: SpeechJob, speech: Plan | SpeechResult
) -> AnyResponse:
    """Return a response whose headers name the knobs that did nothing, and warn of the rest.

    What was left out of the text is a JSON list besides; headers are ASCII, with escapes.
    """
    add_ignored_header(answer, idle_knobs(speech.params, job.params.model_fields_set))
    if warnings := warnings_for(job.text, speech):
        escaped = "; ".join(warnings).encode("unicode_escape")  # control characters, too
        answer.headers["X-Warning"] = escaped.decode()
    if speech.left_out:
        answer.headers["X-Left-Out"] = json.dumps(speech.left_out[:_MOST_LISTED])
    return answer
