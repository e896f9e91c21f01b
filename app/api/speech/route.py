"""A text in, its sound out. Nothing here blocks: speech is made in the engine's thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.responses import StreamingResponse

from app.api.answers import SPEECH_ANSWERS, error_answers
from app.api.errors import CLIENT_CLOSED
from app.api.gate.askers import asker
from app.api.model_names import check_model
from app.api.output import output_of
from app.api.reports.recent import Failure, RecentSpeeches, SpeechReport
from app.api.reports.writing import ReportWriter, report_pieces
from app.api.routes import EngineDep
from app.api.schemas import SoundQuery, SpeechRequest, TtsRequest
from app.api.speech.body import speech_body, speech_schema
from app.api.speech.streaming import StreamedSpeech
from app.api.speech.whole import Heard, opening, unless_client_leaves, whole, whole_response
from app.api.speech.workshop import Workshop
from app.audio.rendering import OutputOptions
from app.engine.engine import SpeechEngine
from app.engine.errors import DeadlineExceeded, GenerationFailed
from app.engine.job import SpeechJob
from app.engine.serving.ticket import SpeechStream


def _recent(request: Request) -> RecentSpeeches:
    recent: RecentSpeeches = request.app.state.recent
    return recent


SpeechId = Annotated[str, Path(alias="id", description="`x-request-id` of the response.")]
RecentDep = Annotated[RecentSpeeches, Depends(_recent)]
SpeechBody = Annotated[SpeechRequest, Depends(speech_body(SpeechRequest))]
TtsBody = Annotated[SpeechRequest, Depends(speech_body(TtsRequest))]

speech_router = APIRouter(tags=["speech"])


@speech_router.post(
    "/v1/audio/speech", responses=SPEECH_ANSWERS, openapi_extra=speech_schema(SpeechRequest)
)
async def create_speech(
    request: Request, wanted: SpeechBody, engine: EngineDep, recent: RecentDep
) -> Response:
    """Speak a text, as OpenAI's clients ask for it: MP3 while it is made, unless told otherwise."""
    return await _speak(request, wanted, engine, recent)


@speech_router.post("/tts", responses=SPEECH_ANSWERS, openapi_extra=speech_schema(TtsRequest))
async def create_tts(
    request: Request, wanted: TtsBody, engine: EngineDep, recent: RecentDep
) -> Response:
    """Speak a text: a whole WAV, unless told otherwise."""
    return await _speak(request, wanted, engine, recent)


async def _speak(
    request: Request, wanted: SpeechRequest, engine: SpeechEngine, recent: RecentSpeeches
) -> Response:
    """Speak a text, whole or while it is made."""
    came_s = monotonic()
    check_model(wanted.model, engine.info.name)
    job = wanted.job(request.state.id, request.state.owner, asker(request))
    manner = output_of(job, wanted.response_format)
    stream = engine.submit(job)
    reading = opening(stream, came_s) if wanted.streamed else whole(stream, came_s)
    with _failures_kept(job, stream, recent):
        heard = await unless_client_leaves(request, reading)
    if heard is None:
        recent.keep(job, Failure(None, stream.plan, stream.progress.frames, 0.0))
        return Response(status_code=CLIENT_CLOSED)
    if wanted.streamed:
        assert stream.plan is not None  # there is sound
        return StreamedSpeech(
            job,
            stream,
            heard.chunks,
            recent,
            manner=manner,
            likely_lufs=engine.voices.likely_lufs(stream.plan.voice),
            workshop=request.app.state.workshop,
            who=asker(request),
            events=wanted.stream_format == "sse",
            first_audio_s=heard.first_audio_s,
            stall_timeout_s=request.app.state.settings.stall_timeout_s,
        )
    recent.keep(job, heard.result)
    return await _whole_answer(request, heard, manner)


@speech_router.get(
    "/v1/audio/speech/{id}",
    response_model=SpeechReport,
    responses=error_answers(_404="No response of that id is kept."),
)
async def get_speech(request: Request, speech_id: SpeechId, recent: RecentDep) -> Response:
    """Tell how a recent speech was made: its knobs, codes, timings and, where asked, its trace."""
    job, outcome = recent.find(speech_id, request.state.owner)
    writer: ReportWriter = request.app.state.reports
    body = writer.write(report_pieces(job, outcome))
    return StreamingResponse(body, media_type="application/json")


@speech_router.get(
    "/v1/audio/speech/{id}/audio",
    response_class=Response,
    responses=SPEECH_ANSWERS | error_answers(_404="No whole response of that id is kept."),
)
async def get_speech_audio(
    request: Request,
    speech_id: SpeechId,
    engine: EngineDep,
    recent: RecentDep,
    wanted: Annotated[SoundQuery, Query()],
) -> Response:
    """Give the sound of a recent speech again, made from its codes: the same samples.

    Its speed and its loudness are those of its request.
    """
    came_s = monotonic()
    result = recent.result(speech_id, request.state.owner)
    job, _ = recent.find(speech_id, request.state.owner)
    replayed = whole(engine.replay(request.state.id, result, asker(request)), came_s)
    heard = await unless_client_leaves(request, replayed)
    if heard is None:
        return Response(status_code=CLIENT_CLOSED)
    return await _whole_answer(request, heard, output_of(job, wanted.response_format))


async def _whole_answer(request: Request, heard: Heard, manner: OutputOptions) -> Response:
    """Render a whole speech, unless its client leaves meanwhile."""
    workshop: Workshop = request.app.state.workshop
    rendering = whole_response(heard, manner, workshop, asker(request))
    answer = await unless_client_leaves(request, rendering)
    return Response(status_code=CLIENT_CLOSED) if answer is None else answer


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
