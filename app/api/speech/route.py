"""Routes that speak a text, report or repeat a recent speech, and take and return codes.

They never block.
"""

import hashlib
import importlib.util
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic_core import to_json
from starlette.responses import StreamingResponse

from app.api.errors import CLIENT_CLOSED
from app.api.exclusions import check_together
from app.api.history.packing import request_of
from app.api.history.recent import RecentSpeeches
from app.api.history.report import AskedSpeech, Failure, SpeechReport
from app.api.history.writer import TableForm, report_pieces, token_pieces
from app.api.middleware.access.clients import client_of
from app.api.ranges import RANGES, ranged
from app.api.requests import (
    body_schema,
    check_model,
    ignored_fields,
    json_body,
    model_names,
    output_of,
)
from app.api.schemas import (
    SPEECH_OR_CODES,
    SPEECH_RESPONSES,
    TABLES,
    TEXT_RESPONSES,
    PhonemesRequest,
    ReadText,
    ReadUtterance,
    SoundQuery,
    SpeechRequest,
    TtsRequest,
    error_responses,
)
from app.api.services import EngineDep, ServicesDep, services_of
from app.api.speech.answer import Answer, StreamedSpeech, result_of
from app.api.speech.body_formats import BodyFormat, body_format_of
from app.api.speech.headers import add_ignored_header, add_warning_headers
from app.audio.formats import MEDIA_TYPES, AudioFormat
from app.engine.admission.durations import check_audio_s, pauses_s
from app.engine.core import ReadingOptions, SpeechJob, SpeechPart, SpeechResult
from app.engine.errors import (
    DeadlineExceeded,
    GenerationFailed,
    InvalidRequest,
    UnknownSpeech,
)
from models.text.warnings import warnings_of
from samplers.knobs.params import SamplingParams


def _recent(services: ServicesDep) -> RecentSpeeches:
    return services.recent


SpeechId = Annotated[str, Path(alias="id", description="`x-request-id` of the response.")]

RecentDep = Annotated[RecentSpeeches, Depends(_recent)]

SpeechBody = Annotated[SpeechRequest, Depends(json_body(SpeechRequest))]

TtsBody = Annotated[SpeechRequest, Depends(json_body(TtsRequest))]

PhonemesBody = Annotated[PhonemesRequest, Depends(json_body(PhonemesRequest))]

speech_router = APIRouter(tags=["speech"])


@speech_router.post(
    "/v1/audio/speech", responses=SPEECH_OR_CODES, openapi_extra=body_schema(SpeechRequest)
)
async def create_speech(request: Request, wanted: SpeechBody) -> Response:
    """Speak a text, compatible with OpenAI's clients: by default streamed MP3."""
    return await answer_speech(request, wanted)


@speech_router.post("/tts", responses=SPEECH_OR_CODES, openapi_extra=body_schema(TtsRequest))
async def create_tts(request: Request, wanted: TtsBody) -> Response:
    """Speak a text: by default a whole WAV."""
    return await answer_speech(request, wanted)


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
        owner=request.state.owner,
        client=client_of(request),
        reading=ReadingOptions(
            wanted.language,
            wanted.pronunciations or {},
            wanted.dictionaries,
            wanted.unreadable,
            wanted.thoughts,
        ),
    )
    reading = await engine.read(job)
    return ReadText(
        language=reading.language,
        warnings=warnings_of(wanted.input, reading.language, reading.left_out),
        left_out=list(reading.left_out),
        phonemes=sum(len(one.phonemes) for one in reading.utterances),
        utterances=[
            ReadUtterance.model_validate(one, from_attributes=True) for one in reading.utterances
        ],
    )


async def answer_speech(
    request: Request, wanted: SpeechRequest, body_format: BodyFormat | None = None
) -> Response:
    """Submit a request and return its response, whole or streamed, framed or as it asks."""
    came_s = monotonic()
    state = request.state
    services = services_of(request)
    engine = services.engine
    check_together(wanted)
    if body_format is None:
        body_format = body_format_of(wanted, request.headers.get("accept", ""), engine.info)
    answer = Answer(request, body_format, came_s)
    settings = services.settings
    check_model(wanted.model, engine.info.name, model_names(settings))
    ignored = ignored_fields(wanted, settings, state.id)
    once = settings.once_per_id and state.client_id
    response = await (_spoken_once if once else _spoken)(wanted, answer)
    return add_ignored_header(response, [*ignored, *getattr(state, "ignored", ())])


async def _spoken_once(wanted: SpeechRequest, answer: Answer) -> Response:
    """Return the response to a request whose id may be that of an earlier one; as `_spoken`."""
    request = answer.request
    recent = answer.services.recent
    state = request.state
    body = f"{request.url.path} {wanted.model_dump_json()}"
    digest = hashlib.sha256(body.encode()).hexdigest()
    earlier = await recent.claim(state.owner, state.client_id, digest, state.id)
    if earlier is not None:
        with suppress(UnknownSpeech):
            asked, result = await recent.complete(earlier, state.owner)
            answer.output = output_of(asked.job, wanted.sound_format)
            response = await _replayed(result, answer)
            response.headers["X-Repeats"] = earlier
            return response
    try:
        return await _spoken(wanted, answer)
    except BaseException:
        recent.end(state.id, complete=False)
        raise


async def _spoken(wanted: SpeechRequest, answer: Answer) -> Response:
    """Submit a checked request and return its response."""
    state = answer.request.state
    recent = answer.services.recent
    job = wanted.job(state.id, state.owner, answer.client)
    if wanted.continue_from is not None:
        kept = await recent.take(wanted.continue_from, state.owner)
        job = replace(job, part=SpeechPart(kept=kept))
    asked = AskedSpeech(job, wanted)
    answer.output = output_of(job, wanted.sound_format)
    stream = answer.services.engine.submit(job)
    try:
        chunks = await answer.collected(stream, whole=not wanted.streamed)
    except (DeadlineExceeded, GenerationFailed) as error:
        recent.keep(asked, Failure.of(job, stream.plan, error, stream.progress.frames, 0.0))
        raise
    if chunks is None:
        recent.keep(asked, Failure.of(job, stream.plan, None, stream.progress.frames, 0.0))
        return Response(status_code=CLIENT_CLOSED)
    if wanted.streamed:
        plan = stream.plan
        assert plan is not None  # known with the first audio
        streamed = StreamedSpeech(answer, asked, stream, chunks)
        return add_warning_headers(streamed, job, plan)
    result = result_of(chunks)
    recent.keep(asked, result)
    return add_warning_headers(await answer.whole(chunks), job, result)


@speech_router.get(
    "/v1/audio/speech/{id}",
    response_model=SpeechReport | SpeechRequest,
    responses=error_responses(_404="No speech of that id is stored.")
    | {200: {"content": {media_type: {} for media_type in TABLES.values()}}},
)
async def get_speech(
    request: Request,
    speech_id: SpeechId,
    recent: RecentDep,
    form: Annotated[
        Literal["json"] | TableForm,
        Query(
            alias="format",
            description="The report, or the tokens of its trace alone: a row each draw of level 0."
            " parquet needs the service's extra of that name.",
        ),
    ] = "json",
    shown: Annotated[
        Literal["report", "request"],
        Query(alias="as", description="`request`: the body of a request that speaks it again."),
    ] = "report",
) -> Response:
    """Return the report of a recent speech: knobs, codes, timings and, if requested, its trace."""
    asked, outcome = await recent.find(speech_id, request.state.owner)
    if shown == "request":
        body = to_json(request_of(asked, outcome), inf_nan_mode="null")
        return Response(body, media_type="application/json")
    writer = services_of(request).reports
    if form != "json":
        if not any(one.trace for one in outcome.utterances):
            raise InvalidRequest("the speech has no trace; ask with trace: true", param="format")
        if form == "parquet" and importlib.util.find_spec("pyarrow") is None:
            cure = "install the extra parquet (scripts/install parquet), or ask for csv or jsonl"
            raise InvalidRequest(f"the service cannot write Parquet: {cure}", param="format")
        tokens = writer.write(token_pieces(outcome, form))
        return StreamingResponse(tokens, media_type=TABLES[form])
    pieces = writer.write(report_pieces(asked.job, outcome))
    return StreamingResponse(pieces, media_type="application/json")


@speech_router.get(
    "/v1/audio/speech/{id}/audio",
    response_class=Response,
    responses=SPEECH_RESPONSES
    | RANGES
    | error_responses(_404="No complete speech of that id is stored."),
)
async def get_speech_audio(
    request: Request,
    speech_id: SpeechId,
    recent: RecentDep,
    wanted: Annotated[SoundQuery, Query()],
) -> Response:
    """Return the audio of a recent speech again, decoded from its codes: the same samples.

    Speed and loudness are those of its request. The header `Range` asks for a part of the file.
    """
    asked, result = await recent.complete(speech_id, request.state.owner)
    return ranged(request, await replayed(request, asked.job, result, wanted.response_format))


async def replayed(
    request: Request, job: SpeechJob, result: SpeechResult, form: AudioFormat
) -> Response:
    """Return the response with the audio of a result's codes, as a job wants it, in a container."""
    answer = Answer(request, BodyFormat(MEDIA_TYPES[form]), monotonic())
    answer.output = output_of(job, form)
    return await _replayed(result, answer)


async def _replayed(result: SpeechResult, answer: Answer) -> Response:
    engine = answer.services.engine
    settings = answer.services.settings
    pauses = pauses_s(result.utterances, result.params.pause_s or 0.0, more=False)
    frames = max(0.0, result.sound_frames - len(result.utterances))  # where the drawing was ended
    sound_s = frames / engine.info.frame_rate_hz
    check_audio_s(sound_s, pauses, answer.output.speed, settings.max_audio_s, param="utterances")
    stream = engine.replay(answer.request.state.id, result, answer.client)
    chunks = await answer.collected(stream, whole=True)
    return Response(status_code=CLIENT_CLOSED) if chunks is None else await answer.whole(chunks)
