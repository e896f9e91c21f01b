"""Routes that speak a text, and that report or repeat a recent speech. They never block."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import monotonic
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.responses import StreamingResponse

from app.api.errors import CLIENT_CLOSED
from app.api.gate.admission import client_of
from app.api.render_pool import RenderPool
from app.api.reports.recent import Failure, RecentSpeeches, SpeechReport
from app.api.reports.writer import ReportWriter, report_pieces, token_pieces
from app.api.requests import (
    EngineDep,
    body_schema,
    check_model,
    ignored_fields,
    json_body,
    model_names,
    output_of,
)
from app.api.responses import (
    NDJSON,
    SPEECH_OR_CODES,
    SPEECH_RESPONSES,
    TEXT_RESPONSES,
    error_responses,
    naming_doubts,
    naming_ignored,
)
from app.api.schemas import (
    PhonemesRequest,
    ReadText,
    ReadUtterance,
    SoundQuery,
    SpeechRequest,
    TtsRequest,
)
from app.api.speech.codes_body import codes_framing
from app.api.speech.collected import (
    CollectedSpeech,
    collect_all,
    collect_opening,
    held_chunks,
    rendered_response,
    unless_client_leaves,
)
from app.api.speech.events import Events
from app.api.speech.framing import Framing
from app.api.speech.streaming import StreamedSpeech
from app.audio.formats import MEDIA_TYPES, AudioFormat
from app.audio.rendering import OutputOptions
from app.engine.admission import check_audio_s, pauses_s
from app.engine.engine import SpeechEngine
from app.engine.errors import (
    DeadlineExceeded,
    GenerationFailed,
    InvalidRequest,
    UnknownSpeech,
)
from app.engine.interface import ModelInfo
from app.engine.job import SpeechJob, SpeechResult
from app.engine.serving.running import SpeechStream
from app.settings import Settings
from models.text.warnings import warnings_of
from samplers.knobs.params import SamplingParams


def _recent(request: Request) -> RecentSpeeches:
    recent: RecentSpeeches = request.app.state.recent
    return recent


SpeechId = Annotated[str, Path(alias="id", description="`x-request-id` of the response.")]
RecentDep = Annotated[RecentSpeeches, Depends(_recent)]
SpeechBody = Annotated[SpeechRequest, Depends(json_body(SpeechRequest))]
TtsBody = Annotated[SpeechRequest, Depends(json_body(TtsRequest))]

PhonemesBody = Annotated[PhonemesRequest, Depends(json_body(PhonemesRequest))]

speech_router = APIRouter(tags=["speech"])


@speech_router.post(
    "/v1/audio/speech", responses=SPEECH_OR_CODES, openapi_extra=body_schema(SpeechRequest)
)
async def create_speech(
    request: Request, wanted: SpeechBody, engine: EngineDep, recent: RecentDep
) -> Response:
    """Speak a text, compatible with OpenAI's clients: by default streamed MP3."""
    return await speak(request, wanted, engine, recent)


@speech_router.post("/tts", responses=SPEECH_OR_CODES, openapi_extra=body_schema(TtsRequest))
async def create_tts(
    request: Request, wanted: TtsBody, engine: EngineDep, recent: RecentDep
) -> Response:
    """Speak a text: by default a whole WAV."""
    return await speak(request, wanted, engine, recent)


@speech_router.post(
    "/v1/audio/phonemes",
    responses=TEXT_RESPONSES,
    openapi_extra=body_schema(PhonemesRequest),
)
async def read_text(request: Request, wanted: PhonemesBody, engine: EngineDep) -> ReadText:
    """Tell how a text would be read, without speaking it: its utterances, words and phonemes."""
    job = SpeechJob(
        request.state.id,
        wanted.input,
        SamplingParams(),
        voice=wanted.voice,
        language=wanted.language,
        owner=request.state.owner,
        asker=client_of(request),
        pronunciations=wanted.pronunciations or {},
        dictionaries=wanted.dictionaries,
    )
    reading = await engine.read(job)
    return ReadText(
        language=reading.language,
        warnings=warnings_of(wanted.input, reading.language),
        phonemes=sum(len(one.phonemes) for one in reading.utterances),
        utterances=[
            ReadUtterance(
                voice=one.voice,
                rate=one.rate,
                text=one.text,
                phonemes=one.phonemes,
                pause_after_s=one.pause_after_s,
            )
            for one in reading.utterances
        ],
    )


async def speak(
    request: Request,
    wanted: SpeechRequest,
    engine: SpeechEngine,
    recent: RecentSpeeches,
    framing: Framing | None = None,
) -> Response:
    """Submit a request and return its response, whole or streamed.

    Args:
        wanted: Its body.
        engine: Speaks it.
        recent: Store of results.
        framing: Shape of the response's body; None: as the request asks.
    """
    came_s = monotonic()
    if framing is None:
        framing = _framing(wanted, request.headers.get("accept", ""), engine.info)
    settings: Settings = request.app.state.settings
    check_model(wanted.model, engine.info.name, model_names(settings))
    ignored = ignored_fields(wanted, settings, request.state.id)
    if not settings.once_per_id or not request.state.client_id:
        answer = await _answer(request, wanted, engine, recent, framing, came_s)
    else:
        answer = await _answer_once(request, wanted, engine, recent, framing, came_s)
    return naming_ignored(answer, [*ignored, *getattr(request.state, "ignored", ())])


def _framing(wanted: SpeechRequest, accept: str, info: ModelInfo) -> Framing:
    """Return the shape that a request asks for."""
    if wanted.response_format == "codes":
        return codes_framing(wanted, accept, info)
    if wanted.stream_format == "sse":
        return Events(wanted.speed)
    return Framing(MEDIA_TYPES[wanted.response_format])


async def _answer_once(
    request: Request,
    wanted: SpeechRequest,
    engine: SpeechEngine,
    recent: RecentSpeeches,
    framing: Framing,
    came_s: float,
) -> Response:
    """Return the response of a request whose id may be that of an earlier one; as `_answer`."""
    state = request.state
    body = f"{request.url.path} {wanted.model_dump_json()}"
    digest = hashlib.sha256(body.encode()).hexdigest()
    earlier = await recent.claim(state.owner, state.client_id, digest, state.id)
    if earlier is not None:
        with suppress(UnknownSpeech):
            job, result = await recent.complete(earlier, state.owner)
            output = output_of(job, wanted.sound_format)
            answer = await _replayed(request, result, engine, output, framing, came_s)
            answer.headers["X-Repeats"] = earlier
            return answer
    try:
        return await _answer(request, wanted, engine, recent, framing, came_s)
    except BaseException:
        recent.end(state.id, complete=False)
        raise


async def _answer(
    request: Request,
    wanted: SpeechRequest,
    engine: SpeechEngine,
    recent: RecentSpeeches,
    framing: Framing,
    came_s: float,
) -> Response:
    """Submit a checked request and return its response."""
    job = wanted.job(request.state.id, request.state.owner, client_of(request))
    job = replace(job, kept=await recent.take(wanted.continue_from, request.state.owner))
    output = output_of(job, wanted.sound_format)
    stream = engine.submit(job)
    if wanted.streamed:
        collecting = collect_opening(stream, came_s)
    else:
        collecting = collect_all(held_chunks(stream, request, output.speed), came_s)
    with _failures_kept(job, stream, recent):
        speech = await unless_client_leaves(request, collecting)
    if speech is None:
        recent.keep(job, Failure.of(job, stream.plan, None, stream.progress.frames, 0.0))
        return Response(status_code=CLIENT_CLOSED)
    if wanted.streamed:
        assert stream.plan is not None  # known with the first audio
        streamed = StreamedSpeech(
            job,
            stream,
            speech.chunks,
            recent,
            output=output,
            likely_lufs=engine.voices.likely_lufs(stream.plan.voice),
            render_pool=request.app.state.render_pool,
            client=client_of(request),
            framing=framing,
            first_audio_s=speech.first_audio_s,
        )
        return naming_doubts(streamed, job, stream.plan.language, stream.plan.params)
    result = speech.result
    recent.keep(job, result)
    answer = await _whole_response(request, speech, output, framing)
    return naming_doubts(answer, job, result.language, result.params)


@speech_router.get(
    "/v1/audio/speech/{id}",
    response_model=SpeechReport,
    responses=error_responses(_404="No speech of that id is stored."),
)
async def get_speech(
    request: Request,
    speech_id: SpeechId,
    recent: RecentDep,
    form: Annotated[
        Literal["json", "csv", "jsonl"],
        Query(
            alias="format",
            description="The report, or the tokens of its trace alone: a row each draw of level 0.",
        ),
    ] = "json",
) -> Response:
    """Return the report of a recent speech: knobs, codes, timings and, if requested, its trace."""
    job, outcome = await recent.find(speech_id, request.state.owner)
    writer: ReportWriter = request.app.state.reports
    if form != "json":
        if not any(one.trace for one in outcome.utterances):
            raise InvalidRequest("the speech has no trace; ask with trace: true", param="format")
        tokens = writer.write(token_pieces(outcome, form))
        return StreamingResponse(tokens, media_type={"csv": "text/csv"}.get(form, NDJSON))
    body = writer.write(report_pieces(job, outcome))
    return StreamingResponse(body, media_type="application/json")


@speech_router.get(
    "/v1/audio/speech/{id}/audio",
    response_class=Response,
    responses=SPEECH_RESPONSES | error_responses(_404="No complete speech of that id is stored."),
)
async def get_speech_audio(
    request: Request,
    speech_id: SpeechId,
    engine: EngineDep,
    recent: RecentDep,
    wanted: Annotated[SoundQuery, Query()],
) -> Response:
    """Return the audio of a recent speech again, decoded from its codes: the same samples.

    Speed and loudness are those of its request.
    """
    came_s = monotonic()
    job, result = await recent.complete(speech_id, request.state.owner)
    return await replayed_response(request, job, result, engine, wanted.response_format, came_s)


async def replayed_response(
    request: Request,
    job: SpeechJob,
    result: SpeechResult,
    engine: SpeechEngine,
    form: AudioFormat,
    came_s: float,
) -> Response:
    """Return the response with the audio of a result's codes.

    Args:
        job: Whose speed and loudness are used.
        result: The codes, and the pauses between them.
        engine: Decodes them.
        form: The container.
        came_s: Monotonic time of the request.
    """
    framing = Framing(MEDIA_TYPES[form])
    return await _replayed(request, result, engine, output_of(job, form), framing, came_s)


async def _replayed(
    request: Request,
    result: SpeechResult,
    engine: SpeechEngine,
    output: OutputOptions,
    framing: Framing,
    came_s: float,
) -> Response:
    """As `replayed_response`, with any output in any shape."""
    settings: Settings = request.app.state.settings
    pauses = pauses_s(result.utterances, result.params.pause_s or 0.0, more=False)
    frames = max(0.0, result.sound_frames - len(result.utterances))  # where the drawing was ended
    sound_s = frames / engine.info.frame_rate_hz
    check_audio_s(sound_s, pauses, output.speed, settings.max_audio_s, param="utterances")
    stream = engine.replay(request.state.id, result, client_of(request))
    replayed = collect_all(held_chunks(stream, request, output.speed), came_s)
    speech = await unless_client_leaves(request, replayed)
    if speech is None:
        return Response(status_code=CLIENT_CLOSED)
    return await _whole_response(request, speech, output, framing)


async def _whole_response(
    request: Request, speech: CollectedSpeech, output: OutputOptions, framing: Framing
) -> Response:
    """Return the response with a whole speech, unless the client disconnects."""
    render_pool: RenderPool = request.app.state.render_pool
    rendering = rendered_response(speech, output, framing, render_pool, client_of(request))
    answer = await unless_client_leaves(request, rendering)
    return Response(status_code=CLIENT_CLOSED) if answer is None else answer


@contextmanager
def _failures_kept(job: SpeechJob, stream: SpeechStream, recent: RecentSpeeches) -> Iterator[None]:
    """Store the failure of a job that had started."""
    try:
        yield
    except (DeadlineExceeded, GenerationFailed) as error:
        recent.keep(job, Failure.of(job, stream.plan, error, stream.progress.frames, 0.0))
        raise
