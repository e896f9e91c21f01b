"""Reports as JSON, a small piece at a time: one of a traced minute is megabytes.

Whoever makes text in Python holds the interpreter, and the event loop and the thread that draws
wait for it meanwhile. So a piece takes about a millisecond, pieces are made in another thread, one
at a time for all who ask, and after each the thread rests.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import chain
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel
from pydantic_core import to_json

from app.api.errors import speech_error_detail
from app.api.reports.recent import Failure, RequestReport, SpeechReport, UtteranceReport
from app.engine.job import SpeechJob, SpeechResult, SpokenUtterance
from samplers.ar.trace import entries

_ROWS = 64
"""Frames, records or numbers of a piece."""

_REST = 4.0
"""How many times as long as it worked the thread rests."""

R = TypeVar("R", bound=UtteranceReport)

_LISTS = ("codes", "tokens", "scores", "logprobs")


class ReportWriter:
    """Makes the pieces of all reports of an application, by turns."""

    def __init__(self) -> None:
        """Write nothing yet."""
        self._turn = asyncio.Lock()

    async def write(self, pieces: Iterator[str]) -> AsyncIterator[str]:
        """Yield pieces as they are made, in turn with whoever else asks."""
        while True:
            async with self._turn:
                piece, took_s = await asyncio.to_thread(_timed, pieces)
                if piece is None:
                    return
                await asyncio.sleep(_REST * took_s)
            yield piece


def _timed(pieces: Iterator[str]) -> tuple[str | None, float]:
    """Return the next piece, None at the end, and the seconds that it took."""
    began_s = perf_counter()
    return next(pieces, None), perf_counter() - began_s


def report_json(job: SpeechJob, outcome: SpeechResult | Failure) -> str:
    """Return a `SpeechReport` as JSON; what is no finite number is null."""
    return "".join(report_pieces(job, outcome))


def report_pieces(job: SpeechJob, outcome: SpeechResult | Failure) -> Iterator[str]:
    """Yield the pieces of a `SpeechReport` as JSON; what is no finite number is null."""
    if isinstance(outcome, Failure):
        report = _failure_report(job, outcome)
    else:
        report = _result_report(job, outcome)
    yield _opened(report, "utterances") + ',"utterances":['
    for number, spoken in enumerate(outcome.utterances):
        blank = blank_report(spoken, UtteranceReport)
        yield from chain([","] if number else [], utterance_pieces(blank, spoken))
    yield "]}"


def utterance_pieces(blank: UtteranceReport, spoken: SpokenUtterance) -> Iterator[str]:
    """Yield the pieces of a report of an utterance.

    Args:
        blank: It, with nothing in its long lists.
        spoken: What they tell of.
    """
    yield _opened(blank, *_LISTS) + ',"codes":'
    yield from _listed(spoken.codes)
    trace = spoken.trace
    if trace is None:
        yield "".join(f',"{name}":null' for name in _LISTS[1:]) + "}"
        return
    yield ',"tokens":['
    drawn = len(trace["frame"]) if trace else 0
    for begin in range(0, drawn, _ROWS):
        rows = entries({name: column[begin : begin + _ROWS] for name, column in trace.items()})
        yield ("," if begin else "") + _inner(rows)
    yield "]"
    stayed = _stayed(trace["frame"], spoken) if drawn else []
    for name, column in (("scores", "score"), ("logprobs", "logprob")):
        yield f',"{name}":'
        yield from _listed(trace[column][stayed] if drawn else np.zeros(0))
    yield "}"


def blank_report(spoken: SpokenUtterance, kind: type[R], **more: Any) -> R:
    """Return a report of an utterance with nothing in its long lists.

    Args:
        spoken: What it tells of.
        kind: `UtteranceReport`, or what has more fields.
        more: Those.
    """
    return kind(
        codes=[],
        finish_reason=spoken.finish_reason,
        backtracks=list(spoken.backtracks),
        takes=list(spoken.takes),
        tokens=None,
        scores=None,
        logprobs=None,
        **more,
    )


def _opened(report: BaseModel, *without: str) -> str:
    """Return a model as JSON, some fields left out and its brace not closed."""
    return report.model_dump_json(exclude=set(without))[:-1]


def _listed(values: np.ndarray[Any, Any]) -> Iterator[str]:
    """Yield the pieces of a list."""
    yield "["
    for begin in range(0, len(values), _ROWS):
        yield ("," if begin else "") + _inner(values[begin : begin + _ROWS].tolist())
    yield "]"


def _inner(values: list[Any]) -> str:
    """Return what stands between the brackets of a list."""
    return to_json(values, inf_nan_mode="null").decode()[1:-1]


def _failure_report(job: SpeechJob, failure: Failure) -> SpeechReport:
    plan = failure.plan
    return SpeechReport(
        id=job.id,
        request=RequestReport(
            input=job.text,
            voice=plan.voice.name if plan else job.voice,
            language=plan.language if plan else job.language,
            max_duration_s=job.max_duration_s,
            params=plan.params if plan else job.params,
        ),
        finish_reason=failure.finish_reason,
        error=failure.error and speech_error_detail(failure.error),
        codes_sha256=None,
        frames=failure.frames,
        audio_s=failure.audio_s,
        timings=None,
        nar=plan.nar if plan else None,
        decoder=plan.decoder if plan else None,
        utterances=[],
    )


def _result_report(job: SpeechJob, result: SpeechResult) -> SpeechReport:
    return SpeechReport(
        id=job.id,
        request=RequestReport(
            input=job.text,
            voice=result.voice,
            language=result.language,
            max_duration_s=job.max_duration_s,
            params=result.params,
        ),
        finish_reason=result.finish_reason,
        error=None,
        codes_sha256=result.codes_sha256,
        frames=result.frames,
        audio_s=result.audio_s,
        timings=result.timings,
        nar=result.nar,
        decoder=result.decoder,
        utterances=[],
    )


def _stayed(frames: np.ndarray[Any, Any], spoken: SpokenUtterance) -> list[int]:
    """Return which records stayed: of draws for the same frame the last one, the stop included."""
    stayed: list[int] = []
    for record, frame in enumerate(frames.tolist()):
        del stayed[frame:]
        stayed.append(record)
    return stayed[: len(spoken.codes) + (spoken.finish_reason == "stop")]
