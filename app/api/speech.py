"""A text in, its sound out. Nothing here blocks: speech is made in the engine's thread."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import aclosing, contextmanager
from time import monotonic
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.api import audio
from app.api.answers import SPEECH_ANSWERS, SPEECH_BODY, error_answers, result_headers
from app.api.recent import Failure, RecentSpeeches, SpeechReport, report_json
from app.api.routes import EngineDep
from app.api.schemas import OPENAI_MODELS, SpeechRequest
from app.api.streaming import MEDIA_TYPES, Container, StreamedSpeech, disconnected
from app.engine.errors import DeadlineExceeded, GenerationFailed, UnknownModel
from app.engine.job import AudioChunk, SpeechJob
from app.engine.ticket import SpeechStream

CLIENT_CLOSED = 499  # nobody reads it; nginx's word for a client that left, in the access log

T = TypeVar("T")


def _recent(request: Request) -> RecentSpeeches:
    recent: RecentSpeeches = request.app.state.recent
    return recent


async def _speech_request(request: Request) -> SpeechRequest:
    """Read the body strictly: JSON knows numbers from text, so "0.5" is no number.

    Raises:
        HTTPException: It is too large or not said to be JSON.
        RequestValidationError: It is no valid request.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "send JSON, with the header content-type: application/json")
    try:
        return SpeechRequest.model_validate_json(await _body(request), strict=True)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from error


async def _body(request: Request) -> bytes:
    """Read no more than is allowed, whatever the length was said to be.

    Raises:
        HTTPException: There is more.
    """
    limit_bytes = request.app.state.settings.max_body_bytes
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit_bytes:
            raise HTTPException(413, f"the body is larger than {limit_bytes} bytes")
    return bytes(body)


SpeechId = Annotated[str, Path(alias="id", description="`x-request-id` of the response.")]
RecentDep = Annotated[RecentSpeeches, Depends(_recent)]
SpeechDep = Annotated[SpeechRequest, Depends(_speech_request)]

speech_router = APIRouter(tags=["speech"])


@speech_router.post("/tts", responses=SPEECH_ANSWERS, openapi_extra=SPEECH_BODY)
@speech_router.post("/v1/audio/speech", responses=SPEECH_ANSWERS, openapi_extra=SPEECH_BODY)
async def speech(
    request: Request, wanted: SpeechDep, engine: EngineDep, recent: RecentDep
) -> Response:
    """Speak a text: whole, or while it is made."""
    came_s = monotonic()
    check_model(wanted.model, engine.info.name)
    job = wanted.job(request.state.id, request.state.owner)
    stream = engine.submit(job)
    reading = _opening(stream) if wanted.streamed else _whole(stream)
    with _failures_kept(job, stream, recent):
        chunks = await _unless_client_leaves(request, reading)
    if chunks is None:
        recent.keep(job, Failure(None, stream.plan, stream.progress.frames, 0.0))
        return Response(status_code=CLIENT_CLOSED)
    if wanted.streamed:
        return StreamedSpeech(
            job,
            stream,
            chunks,
            recent,
            container=wanted.response_format,
            first_audio_s=monotonic() - came_s,
            stall_timeout_s=request.app.state.settings.stall_timeout_s,
        )
    result = chunks[-1].result
    assert result is not None
    recent.keep(job, result)
    return await _sound(chunks, wanted.response_format)


@speech_router.get(
    "/v1/audio/speech/{id}",
    response_model=SpeechReport,
    responses=error_answers(_404="No response of that id is kept."),
)
async def recent_speech(request: Request, speech_id: SpeechId, recent: RecentDep) -> Response:
    """Tell how a recent speech was made: its knobs, codes, timings and, where asked, its trace."""
    job, outcome = recent.find(speech_id, request.state.owner)
    # A traced minute is megabytes of JSON: not on the event loop.
    body = await asyncio.to_thread(report_json, job, outcome)
    return Response(body, media_type="application/json")


@speech_router.get(
    "/v1/audio/speech/{id}/audio",
    response_class=Response,
    responses=SPEECH_ANSWERS | error_answers(_404="No whole response of that id is kept."),
)
async def recent_sound(
    request: Request, speech_id: SpeechId, engine: EngineDep, recent: RecentDep
) -> Response:
    """Give the sound of a recent speech again, made from its codes: the same samples."""
    result = recent.result(speech_id, request.state.owner)
    replayed = _whole(engine.replay(request.state.id, result))
    chunks = await _unless_client_leaves(request, replayed)
    if chunks is None:
        return Response(status_code=CLIENT_CLOSED)
    return await _sound(chunks, "wav")


def check_model(wanted: str | None, loaded: str) -> None:
    """Refuse a name that is neither the loaded model's nor one that OpenAI's clients send.

    Raises:
        UnknownModel: It is another.
    """
    if wanted not in {None, loaded, *OPENAI_MODELS}:
        raise UnknownModel(f"the model loaded here is {loaded!r}, not {wanted!r}")


@contextmanager
def _failures_kept(job: SpeechJob, stream: SpeechStream, recent: RecentSpeeches) -> Iterator[None]:
    """Let what breaks a job be told by its id; what was refused was never begun.

    Raises:
        DeadlineExceeded: What broke it.
        GenerationFailed: The same.
    """
    try:
        yield
    except (DeadlineExceeded, GenerationFailed) as error:
        recent.keep(job, Failure(error, stream.plan, stream.progress.frames, 0.0))
        raise


async def _whole(stream: SpeechStream) -> list[AudioChunk]:
    async with aclosing(stream):
        return [chunk async for chunk in stream]


async def _opening(stream: SpeechStream) -> list[AudioChunk]:
    """Return the chunks up to the first that has sound; the last of all has a result."""
    chunks = []
    async for chunk in stream:
        chunks.append(chunk)
        if len(chunk.samples):
            break
    return chunks


async def _sound(chunks: list[AudioChunk], container: Container) -> Response:
    """Return a whole speech."""
    result, rate_hz = chunks[-1].result, chunks[0].sample_rate_hz
    assert result is not None
    samples = np.concatenate([chunk.samples for chunk in chunks])
    if container == "wav":
        sound = await asyncio.to_thread(audio.wav, samples, rate_hz)
    else:
        sound = audio.pcm(samples)
    headers = result_headers(result, rate_hz)
    return Response(sound, media_type=MEDIA_TYPES[container], headers=headers)


async def _unless_client_leaves(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what the work gives, or cancel it and return None once the client is gone."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(disconnected(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()
