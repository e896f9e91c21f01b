"""Serialisation of reports to JSON in small pieces: a traced minute of speech is megabytes.

Building strings holds the GIL, which blocks the event loop and the AR thread. So each piece
takes about 1 ms, pieces are built in another thread, one at a time for all clients, and the thread
sleeps between two.
"""

import asyncio
import csv
import io
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from time import perf_counter
from typing import Any, AnyStr, Final, Literal, TypeAlias

import numpy as np
from pydantic import TypeAdapter
from pydantic_core import to_json

from app.api.history.heard import sounds_after
from app.api.history.report import Failure, Outcome, RequestReport, SpeechReport
from app.engine.core import Plan, SpeechJob, SpeechResult
from app.engine.results import STOPPED, TraceColumns, UtteranceResult
from models.text.warnings import warnings_of
from samplers.ar.trace import TOPS, entries
from samplers.knobs.features import param_warnings

_ROWS = 64
"""Rows of a list in one piece."""

_LONGER = 16
"""How many times longer a token with its likeliest codes is."""

_REST = 4.0
"""Sleep after a piece, as a multiple of the time it took."""

_FREE_BITS = 12.0
_WORTH_SAYING = 0.25
"""A mu that lets every code pass, and the share of the codes from which a warning says so."""

_SILENT: Final = "nothing is spoken: the text has only signs, symbols or pauses"

_LISTS: Final = ("tokens", "scores", "logprobs")
_SPOKEN: Final = TypeAdapter(UtteranceResult)
_NOT_TEXT: Final = {"codes", "pause_after_s", "trace", "memory"}

TableForm: TypeAlias = Literal["csv", "jsonl", "parquet"]


class ReportWriter:
    """Builds the pieces of all reports of an application in turn."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def write(self, pieces: Iterator[AnyStr]) -> AsyncIterator[AnyStr]:
        """Yield pieces, but for empty ones, taking turns with other reports."""
        while True:
            async with self._turn:
                piece, took_s = await asyncio.to_thread(_timed, pieces)
                if piece is None:
                    return
                await asyncio.sleep(_REST * took_s)
            if piece:
                yield piece


def _timed(pieces: Iterator[AnyStr]) -> tuple[AnyStr | None, float]:
    """Return the next piece, None at the end, and the seconds it took."""
    began_s = perf_counter()
    return next(pieces, None), perf_counter() - began_s


def report_pieces(job: SpeechJob, outcome: Outcome) -> Iterator[str]:
    """Yield a `SpeechReport` as JSON in pieces; NaN and infinity become null."""
    report = _report(job, outcome).model_dump_json(exclude={"utterances"})
    yield report[:-1] + ',"utterances":['
    for number, spoken in enumerate(outcome.utterances):
        if number:
            yield ","
        yield from utterance_pieces(spoken, job.output.speed)
    yield "]}"


def token_pieces(outcome: Outcome, form: TableForm) -> Iterator[bytes]:
    """Yield the tokens of a traced speech in pieces: a row a draw, with its utterance's number."""
    pieces = (
        [{"utterance": number, **row} for row in rows]
        for number, one in enumerate(outcome.utterances)
        for rows in _token_rows(one.trace or {})
    )
    if form == "jsonl":
        for rows in pieces:
            yield b"".join(to_json(row, inf_nan_mode="null") + b"\n" for row in rows)
        return
    plain = ([{name: _cell(cell) for name, cell in row.items()} for row in rows] for rows in pieces)
    yield from _csv_pieces(plain) if form == "csv" else _parquet_pieces(plain)


def _csv_pieces(pieces: Iterator[list[dict[str, Any]]]) -> Iterator[bytes]:
    for number, rows in enumerate(pieces):
        text = io.StringIO()
        table = csv.DictWriter(text, rows[0], lineterminator="\n")
        if not number:
            table.writeheader()
        table.writerows(rows)
        yield text.getvalue().encode()


def _parquet_pieces(pieces: Iterator[list[dict[str, Any]]]) -> Iterator[bytes]:
    """Yield nothing for each piece that was read, and then the whole file."""
    from pyarrow import BufferOutputStream, Table, concat_tables, parquet

    tables = [Table.from_pylist([])]
    for rows in pieces:
        tables.append(Table.from_pylist(rows))
        yield b""
    file = BufferOutputStream()
    parquet.write_table(concat_tables(tables, promote_options="default"), file)
    yield file.getvalue().to_pybytes()


def _token_rows(trace: TraceColumns) -> Iterator[list[dict[str, Any]]]:
    """Yield the tokens of a trace, as many at a time as make a piece."""
    size = _ROWS // _LONGER if TOPS[0] in trace else _ROWS
    for begin in range(0, len(trace["frame"]) if trace else 0, size):
        yield entries({name: column[begin : begin + size] for name, column in trace.items()})


def _cell(value: Any) -> Any:
    """Return a value as a table has it: None for no number, and a list as JSON."""
    if isinstance(value, list):
        return to_json(value, inf_nan_mode="null").decode()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def utterance_pieces(spoken: UtteranceResult, speed: float, **more: Any) -> Iterator[str]:
    """Yield an `UtteranceReport` as JSON in pieces, with further fields of its object."""
    fields = [_SPOKEN.dump_json(spoken.at_speed(speed), exclude=_NOT_TEXT).decode()[:-1]]
    fields += [f'"{name}":{to_json(value).decode()}' for name, value in more.items()]
    yield ",".join([*fields, '"codes":'])
    yield from _list_pieces(spoken.codes)
    trace = spoken.trace
    if trace is None:
        yield "".join(f',"{name}":null' for name in _LISTS) + "}"
        return
    yield ',"tokens":['
    tokens = len(trace["frame"]) if trace else 0
    for number, rows in enumerate(_token_rows(trace)):
        yield ("," if number else "") + _items(rows)
    yield "]"
    rows_kept = _kept_rows(trace["frame"], spoken) if tokens else []
    for name, column in (("scores", "score"), ("logprobs", "logprob")):
        yield f',"{name}":'
        yield from _list_pieces(trace[column][rows_kept] if tokens else np.zeros(0))
    yield "}"


def _list_pieces(values: np.ndarray[Any, Any]) -> Iterator[str]:
    """Yield an array ``[N, ...]`` as a JSON list in pieces."""
    yield "["
    for begin in range(0, len(values), _ROWS):
        yield ("," if begin else "") + _items(values[begin : begin + _ROWS].tolist())
    yield "]"


def _items(values: list[Any]) -> str:
    """Return the JSON of a list without its brackets."""
    return to_json(values, inf_nan_mode="null").decode()[1:-1]


def warnings_for(text: str, speech: Plan | Outcome) -> list[str]:
    """Return a sentence for each thing that its author may not expect of a text and its knobs."""
    warnings = warnings_of(text, speech.language or "", speech.left_out)
    if isinstance(speech, SpeechResult) and not any(one.phonemes for one in speech.utterances):
        warnings.append(_SILENT)
    warnings += param_warnings(speech.params)
    if isinstance(speech, SpeechResult):
        warnings += sounds_after(speech.utterances)
    return warnings


def _report(job: SpeechJob, outcome: Outcome) -> SpeechReport:
    """Return the report of a job, without its utterances."""
    failed = isinstance(outcome, Failure)
    warnings = list[str]()
    if outcome.nar is not None:
        warnings = warnings_for(job.text, outcome)
    return SpeechReport(
        id=job.id,
        request=RequestReport(
            input=job.text,
            voice=outcome.voice,
            language=outcome.language,
            max_duration_s=job.max_duration_s,
            params=outcome.params,
        ),
        finish_reason=outcome.finish_reason,
        error=outcome.error if isinstance(outcome, Failure) else None,
        codes_sha256=outcome.codes_sha256,
        frames=outcome.frames,
        audio_s=round(outcome.audio_s, 6),
        timings=outcome.timings,
        nar=outcome.nar,
        decoder=outcome.decoder,
        made_by=outcome.made_by,
        warnings=warnings if failed else warnings + _mirostat_warnings(outcome.utterances),
        left_out=list(outcome.left_out),
        utterances=[],
    )


def _mirostat_warnings(utterances: Sequence[UtteranceResult]) -> list[str]:
    """Return a sentence if the trace shows that mirostat kept every code, or one alone."""
    mu = [one.trace.get("mirostat_mu", ()) for one in utterances if one.trace]
    known = np.concatenate([np.zeros(0), *mu])
    known = known[np.isfinite(known)]
    free, shut = (
        float(found.mean()) if len(known) else 0.0 for found in (known > _FREE_BITS, known < 0)
    )
    if max(free, shut) < _WORTH_SAYING:
        return []
    wrong, cure = ("above", "lower") if free > shut else ("below", "raise")
    return [
        f"mirostat let go: mu lies {wrong} its range for {max(free, shut):.0%} of the codes, so"
        f" that {'every code is' if free > shut else 'one code alone is'} kept; {cure} mirostat_tau"
    ]


def _kept_rows(frames: np.ndarray[Any, Any], spoken: UtteranceResult) -> list[int]:
    """Return the rows of a trace whose tokens were kept: the last of each frame, and the stop."""
    kept: list[int] = []
    first = int(frames[0])  # more than 0 if an earlier take has drawn the frames before it
    for record, frame in enumerate(frames.tolist()):
        del kept[frame - first :]
        kept.append(record)
    return kept[: len(spoken.codes) - first + (spoken.finish_reason in STOPPED)]
