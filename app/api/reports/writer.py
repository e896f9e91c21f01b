"""Serialisation of reports to JSON in small pieces: a traced minute of speech is megabytes.

Building strings holds the GIL, which blocks the event loop and the decoding thread. So each piece
takes about 1 ms, pieces are built in another thread, one at a time for all clients, and the thread
sleeps between two.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from itertools import chain
from time import perf_counter
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel
from pydantic_core import to_json

from app.api.errors import speech_error_detail
from app.api.reports.recent import Failure, RequestReport, SpeechReport, UtteranceReport
from app.api.schemas import UtteranceText
from app.engine.job import STOPPED, SpeechJob, SpeechResult, SpokenUtterance, TraceColumns
from models.text.warnings import warnings_of
from samplers.ar.trace import TOPS, entries
from samplers.knobs.needs import doubts

_ROWS = 64
"""Rows of a list in one piece."""

_LONGER = 16
"""How many times longer a token with its likeliest codes is."""

_REST = 4.0
"""Sleep after a piece, as a multiple of the time it took."""

R = TypeVar("R", bound=UtteranceReport)

_FREE_BITS, _TOLD = 12.0, 0.25
"""A mu that lets every code pass, and the share of the codes from which it is told."""

_LISTS = ("codes", "tokens", "scores", "logprobs")


class ReportWriter:
    """Builds the pieces of all reports of an application in turn."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def write(self, pieces: Iterator[str]) -> AsyncIterator[str]:
        """Yield pieces, taking turns with other reports."""
        while True:
            async with self._turn:
                piece, took_s = await asyncio.to_thread(_timed, pieces)
                if piece is None:
                    return
                await asyncio.sleep(_REST * took_s)
            yield piece


def _timed(pieces: Iterator[str]) -> tuple[str | None, float]:
    """Return the next piece, None at the end, and the seconds it took."""
    began_s = perf_counter()
    return next(pieces, None), perf_counter() - began_s


def report_json(job: SpeechJob, outcome: SpeechResult | Failure) -> str:
    """Return a `SpeechReport` as JSON; NaN and infinity become null."""
    return "".join(report_pieces(job, outcome))


def report_pieces(job: SpeechJob, outcome: SpeechResult | Failure) -> Iterator[str]:
    """Yield a `SpeechReport` as JSON in pieces; NaN and infinity become null."""
    if isinstance(outcome, Failure):
        report = _failure_report(job, outcome)
    else:
        report = _result_report(job, outcome)
    yield _open_object(report, "utterances") + ',"utterances":['
    for number, spoken in enumerate(outcome.utterances):
        blank = blank_report(spoken, UtteranceReport, job.speed)
        yield from chain([","] if number else [], utterance_pieces(blank, spoken))
    yield "]}"


def token_pieces(outcome: SpeechResult | Failure, form: Literal["csv", "jsonl"]) -> Iterator[str]:
    """Yield the tokens of a traced speech in pieces: a row a draw, with its utterance's number."""
    traces = [(number, one.trace) for number, one in enumerate(outcome.utterances) if one.trace]
    if form == "csv" and traces:
        yield ",".join(["utterance", *traces[0][1]]) + "\n"
    for number, trace in traces:
        for rows in _token_rows(trace):
            if form == "jsonl":
                yield "".join(
                    to_json({"utterance": number, **row}, inf_nan_mode="null").decode() + "\n"
                    for row in rows
                )
            else:
                cells = ([number, *map(_cell, row.values())] for row in rows)
                yield "".join(",".join(map(str, line)) + "\n" for line in cells)


def _token_rows(trace: TraceColumns) -> Iterator[list[dict[str, Any]]]:
    """Yield the tokens of a trace, as many at a time as make a piece."""
    size = _ROWS // _LONGER if TOPS[0] in trace else _ROWS
    for begin in range(0, len(trace["frame"]) if trace else 0, size):
        yield entries({name: column[begin : begin + size] for name, column in trace.items()})


def _cell(value: Any) -> Any:
    """Return a value as CSV has it: nothing for no number, and a list as JSON in quotes."""
    if isinstance(value, list):
        told = to_json(value, inf_nan_mode="null").decode().replace('"', '""')
        return f'"{told}"'
    return "" if isinstance(value, float) and not math.isfinite(value) else value


def utterance_pieces(blank: UtteranceReport, spoken: SpokenUtterance) -> Iterator[str]:
    """Yield an utterance's report as JSON in pieces.

    Args:
        blank: The report with empty lists.
        spoken: The utterance with the lists' content.
    """
    yield _open_object(blank, *_LISTS) + ',"codes":'
    yield from _list_pieces(spoken.codes)
    trace = spoken.trace
    if trace is None:
        yield "".join(f',"{name}":null' for name in _LISTS[1:]) + "}"
        return
    yield ',"tokens":['
    drawn = len(trace["frame"]) if trace else 0
    for number, rows in enumerate(_token_rows(trace)):
        yield ("," if number else "") + _items(rows)
    yield "]"
    rows_kept = _kept_rows(trace["frame"], spoken) if drawn else []
    for name, column in (("scores", "score"), ("logprobs", "logprob")):
        yield f',"{name}":'
        yield from _list_pieces(trace[column][rows_kept] if drawn else np.zeros(0))
    yield "}"


def blank_report(spoken: SpokenUtterance, kind: type[R], speed: float, **more: Any) -> R:
    """Return an utterance's report with empty lists.

    Args:
        kind: `UtteranceReport` or a subclass.
        speed: Of the playback.
        more: Further fields of the subclass.
    """
    return kind(
        **UtteranceText.fields_of(spoken, speed),
        codes=[],
        finish_reason=spoken.finish_reason,
        backtracks=list(spoken.backtracks),
        takes=list(spoken.takes),
        tokens=None,
        scores=None,
        logprobs=None,
        **more,
    )


def _open_object(report: BaseModel, *without: str) -> str:
    """Return a model as JSON without some fields and without its closing brace."""
    return report.model_dump_json(exclude=set(without))[:-1]


def _list_pieces(values: np.ndarray[Any, Any]) -> Iterator[str]:
    """Yield an array ``[N, ...]`` as a JSON list in pieces."""
    yield "["
    for begin in range(0, len(values), _ROWS):
        yield ("," if begin else "") + _items(values[begin : begin + _ROWS].tolist())
    yield "]"


def _items(values: list[Any]) -> str:
    """Return the JSON of a list without its brackets."""
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
        audio_s=round(failure.audio_s, 6),
        timings=None,
        nar=plan.nar if plan else None,
        decoder=plan.decoder if plan else None,
        warnings=[*warnings_of(job.text, plan.language), *doubts(plan.params)] if plan else [],
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
        audio_s=round(result.audio_s, 6),
        timings=result.timings,
        nar=result.nar,
        decoder=result.decoder,
        warnings=[
            *warnings_of(job.text, result.language),
            *doubts(result.params),
            *_mirostat_doubts(result),
        ],
        utterances=[],
    )


def _mirostat_doubts(result: SpeechResult) -> list[str]:
    """Return a sentence if the trace shows that mirostat kept every code, or one alone."""
    mu = [one.trace.get("mirostat_mu", ()) for one in result.utterances if one.trace]
    told = np.concatenate([np.zeros(0), *mu])
    told = told[np.isfinite(told)]
    free, shut = (
        float(found.mean()) if len(told) else 0.0 for found in (told > _FREE_BITS, told < 0)
    )
    if max(free, shut) < _TOLD:
        return []
    wrong, cure = ("above", "lower") if free > shut else ("below", "raise")
    return [
        f"mirostat let go: mu lies {wrong} its range for {max(free, shut):.0%} of the codes, so"
        f" that {'every code is' if free > shut else 'one code alone is'} kept; {cure} mirostat_tau"
    ]


def _kept_rows(frames: np.ndarray[Any, Any], spoken: SpokenUtterance) -> list[int]:
    """Return the rows of a trace whose tokens were kept: the last of each frame, and the stop."""
    kept: list[int] = []
    first = int(frames[0])  # more than 0 if an earlier take has drawn the frames before it
    for record, frame in enumerate(frames.tolist()):
        del kept[frame - first :]
        kept.append(record)
    return kept[: len(spoken.codes) - first + (spoken.finish_reason in STOPPED)]
