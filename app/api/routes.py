"""The routes. Nothing here blocks: speech is made in the engine's thread."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.api import audio
from app.api.recent import RecentSpeeches, SpeechReport, report_json
from app.api.schemas import (
    OPENAI_MODELS,
    ErrorBody,
    Health,
    ModelItem,
    ModelList,
    Ready,
    SpeechRequest,
    VoiceItem,
    VoiceList,
)
from app.engine.engine import SpeechEngine
from app.engine.errors import UnknownModel
from app.engine.job import AudioChunk, SpeechResult
from app.engine.ticket import SpeechStream

CLIENT_CLOSED = 499  # nobody reads it; nginx's word for a client that left, in the access log

Errors = dict[int | str, dict[str, Any]]


def _errors(**reasons: str) -> Errors:
    return {
        int(status[1:]): {"model": ErrorBody, "description": reason}
        for status, reason in reasons.items()
    }


NOT_READY = _errors(_503="Not ready; come back in Retry-After seconds.")
SPEECH_ANSWERS: Errors = {
    200: {"description": "The sound.", "content": {"audio/wav": {}}},
    **_errors(
        _404="No such voice or model.",
        _413="The body is too large.",
        _415="The body is not JSON.",
        _422="A field is wrong; `param` names it.",
        _500="The speech could not be made.",
        _503="Busy or not ready; come back in Retry-After seconds.",
        _504="It took longer than this server allows.",
    ),
}
SPEECH_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": SpeechRequest.model_json_schema()}},
    }
}


def _engine(request: Request) -> SpeechEngine:
    engine: SpeechEngine = request.app.state.engine
    return engine


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


EngineDep = Annotated[SpeechEngine, Depends(_engine)]
SpeechId = Annotated[str, Path(alias="id", description="`x-request-id` of the response.")]
RecentDep = Annotated[RecentSpeeches, Depends(_recent)]
SpeechDep = Annotated[SpeechRequest, Depends(_speech_request)]


speech_router = APIRouter(tags=["speech"])
health_router = APIRouter(tags=["health"])


@speech_router.post("/tts", responses=SPEECH_ANSWERS, openapi_extra=SPEECH_BODY)
@speech_router.post("/v1/audio/speech", responses=SPEECH_ANSWERS, openapi_extra=SPEECH_BODY)
async def speech(
    request: Request, wanted: SpeechDep, engine: EngineDep, recent: RecentDep
) -> Response:
    """Speak a text."""
    _check_model(wanted.model, engine.info.name)
    job = wanted.job(request.state.id)
    chunks = await _unless_client_leaves(request, _whole(lambda: engine.submit(job)))
    if chunks and (result := chunks[-1].result):
        recent.keep(job, result)
    return await _sound(chunks)


@speech_router.get(
    "/v1/audio/speech/{id}",
    response_model=SpeechReport,
    responses=_errors(_404="No response of that id is kept."),
)
async def recent_speech(speech_id: SpeechId, recent: RecentDep) -> Response:
    """Tell how a recent speech was made: its knobs, codes, timings and, where asked, its trace."""
    job, result = recent[speech_id]
    # A traced minute is megabytes of JSON: not on the event loop.
    body = await asyncio.to_thread(report_json, job, result)
    return Response(body, media_type="application/json")


@speech_router.get(
    "/v1/audio/speech/{id}/audio",
    response_class=Response,
    responses=SPEECH_ANSWERS | _errors(_404="No response of that id is kept."),
)
async def recent_sound(
    request: Request, speech_id: SpeechId, engine: EngineDep, recent: RecentDep
) -> Response:
    """Give the sound of a recent speech again, made from its codes: the same samples."""
    _, result = recent[speech_id]
    replayed = _whole(lambda: engine.replay(request.state.id, result))
    return await _sound(await _unless_client_leaves(request, replayed))


@speech_router.get("/v1/audio/voices", responses=NOT_READY)
async def voices(engine: EngineDep) -> VoiceList:
    """List the voices."""
    items = [
        VoiceItem(
            id=voice.name,
            name=voice.title or voice.name,
            language=voice.language,
            description=voice.description,
        )
        for voice in engine.voices
    ]
    return VoiceList(voices=items)


@speech_router.get("/v1/models", responses=NOT_READY)
async def models(engine: EngineDep) -> ModelList:
    """List the models: the one that is loaded."""
    return ModelList(data=[ModelItem(id=engine.info.name)])


@health_router.head("/health", include_in_schema=False)
@health_router.get("/health", responses=_errors(_503="Restart me; the message says why."))
async def health(engine: EngineDep) -> Health:
    """Tell whether the process is alive; 503 if a restart is the only help."""
    engine.check_healthy()
    status = engine.status
    info = engine.info if status.state == "ready" else None
    return Health(
        state=status.state,
        model=info.name if info else None,
        device=info.device if info else None,
        weights=info.weights if info else None,
        queued=status.queued,
        running=status.running,
    )


@health_router.head("/ready", include_in_schema=False)
@health_router.get("/ready", responses=NOT_READY)
async def ready(engine: EngineDep) -> Ready:
    """Tell whether requests are taken; 503 with what it waits for."""
    engine.check_ready()
    return Ready(model=engine.info.name)


def _check_model(wanted: str | None, loaded: str) -> None:
    """Refuse a name that is neither the loaded model's nor one that OpenAI's clients send.

    Raises:
        UnknownModel: It is another.
    """
    if wanted not in {None, loaded, *OPENAI_MODELS}:
        raise UnknownModel(f"the model loaded here is {loaded!r}, not {wanted!r}")


async def _whole(begin: Callable[[], SpeechStream]) -> list[AudioChunk]:
    async with aclosing(begin()) as chunks:
        return [chunk async for chunk in chunks]


async def _sound(chunks: list[AudioChunk] | None) -> Response:
    """Return a whole speech as WAV, or nothing to a client that left."""
    if chunks is None:
        return Response(status_code=CLIENT_CLOSED)
    result = chunks[-1].result
    assert result is not None
    samples = np.concatenate([chunk.samples for chunk in chunks])
    sound = await asyncio.to_thread(audio.wav, samples, chunks[0].sample_rate_hz)
    return Response(sound, media_type="audio/wav", headers=_headers(result))


async def _unless_client_leaves(
    request: Request, work: Coroutine[Any, Any, list[AudioChunk]]
) -> list[AudioChunk] | None:
    """Return what the work gives, or cancel it and return None once the client is gone."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    """Return when the client closes its connection; the body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _headers(result: SpeechResult) -> dict[str, str]:
    """Return what is worth knowing of a speech, as headers."""
    times = result.timings
    stages = {
        "queue": times.queue_s,
        "text": times.text_s,
        "ar": times.ar_s,
        "nar": times.nar_s,
        "codec": times.codec_s,
        "total": times.total_s,
    }
    return {
        "X-Seed": str(result.seed),
        "X-Preset": result.params.preset,
        "X-Voice": result.voice,
        "X-Finish-Reason": result.finish_reason,
        "X-Backtracks": str(result.backtracks),
        "X-Codes-SHA256": result.codes_sha256,
        "X-Frames": str(result.frames),
        "X-Audio-Ms": f"{1000 * result.audio_s:.0f}",
        "X-Queue-Ms": f"{1000 * times.queue_s:.1f}",
        "X-RTF": f"{result.real_time_factor:.3f}",
        "Server-Timing": ", ".join(f"{n};dur={1000 * s:.1f}" for n, s in stages.items()),
    }
