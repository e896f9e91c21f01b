"""Outcomes of speeches as bytes, to be read by another process.

JSON for what is small, and numpy's own format, without pickled objects, for codes and traces: what
comes out of a shared store is data and never code.
"""

import io
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, TypeVar
from zipfile import ZipFile

import numpy as np

from app.api.reports.recent import Failure
from app.api.schemas import SpeechOptions
from app.engine.errors import SpeechError, Unavailable
from app.engine.interface import Plan
from app.engine.job import (
    Backtrack,
    PhonemeTiming,
    RankedTake,
    SamplerMemory,
    SpeechJob,
    SpeechResult,
    SpokenUtterance,
    Timings,
    WordTiming,
)
from models.voices.voice import Voice
from samplers.knobs.params import SamplingParams

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_LEVEL = 1  # of zlib: codes hardly shrink, and traces do at any level

MOST_BYTES = 2**28
"""Longest outcome, unpacked, that is read: more than that of half an hour with its traces."""

Arrays = Mapping[str, np.ndarray[Any, Any]]
P = TypeVar("P", bound=SamplingParams)


def pack(job: SpeechJob, outcome: SpeechResult | Failure, *, traces: bool = True) -> bytes:
    """Return a job and its outcome as bytes.

    Args:
        job: The job; what it continues is left out.
        outcome: Its outcome; of a plan, what a report tells.
        traces: Whether traces are packed too.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for number, spoken in enumerate(outcome.utterances):
        arrays[f"{number}/codes"] = spoken.codes
        if spoken.memory is not None:
            arrays[f"{number}/mu"] = spoken.memory.mu
            arrays[f"{number}/last_act"] = spoken.memory.last_act
        if traces and spoken.trace is not None:
            arrays |= {f"{number}/trace/{name}": col for name, col in spoken.trace.items()}
    head = {
        "job": _plain(job, "params", "before", "kept"),
        "options": isinstance(job.params, SpeechOptions),
        "params": _options(job.params).model_dump(mode="json", exclude_unset=True),
        "utterances": [
            _plain(spoken, "codes", "trace", "backtracks", "takes", "words", "memory")
            | {
                "traced": traces and spoken.trace is not None,
                "backtracks": [asdict(one) for one in spoken.backtracks],
                "takes": [asdict(one) for one in spoken.takes],
                "words": None if spoken.words is None else [asdict(one) for one in spoken.words],
            }
            for spoken in outcome.utterances
        ],
    }
    if isinstance(outcome, Failure):
        head["failure"] = _plain(outcome, "error", "plan", "utterances") | {
            "error": outcome.error and _error(outcome.error),
            "plan": outcome.plan and _plan(outcome.plan),
        }
    else:
        head["result"] = _plain(outcome, "params", "timings", "utterances") | {
            "params": _knobs(outcome.params),
            "timings": asdict(outcome.timings),
        }
    file = io.BytesIO()
    np.savez(
        file, allow_pickle=False, head=np.frombuffer(json.dumps(head).encode(), np.uint8), **arrays
    )
    return zlib.compress(file.getvalue(), _LEVEL)


def unpack(packed: bytes) -> tuple[SpeechJob, SpeechResult | Failure]:
    """Return the job and the outcome that `pack` was given.

    Raises:
        ValueError: They cannot be read: they were damaged, or packed by another version.
    """
    try:
        inflater = zlib.decompressobj()
        raw = inflater.decompress(packed, MOST_BYTES)
        if not inflater.eof:
            raise ValueError(f"it is cut off, or has more than {MOST_BYTES} bytes")
        with ZipFile(io.BytesIO(raw)) as file:
            if sum(one.file_size for one in file.infolist()) > len(raw):
                raise ValueError("its arrays are compressed twice")
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        head = json.loads(arrays["head"].tobytes())
        kind = SpeechOptions if head["options"] else SamplingParams
        job = SpeechJob(params=_params(kind, head["params"]), **head["job"])
        return job, _outcome(job, head, tuple(_utterances(head["utterances"], arrays)))
    except Exception as error:  # others may have written it: whatever fails, it is not one of ours
        raise ValueError(f"it cannot be read: {type(error).__name__}: {error}") from error


def _outcome(
    job: SpeechJob, head: Mapping[str, Any], spoken: tuple[SpokenUtterance, ...]
) -> SpeechResult | Failure:
    if "failure" in head:
        failure = dict(head["failure"])
        error, plan = failure.pop("error"), failure.pop("plan")
        return Failure(
            error=error and _read_error(error),
            plan=plan and _read_plan(job, plan),
            utterances=spoken,
            **failure,
        )
    result = dict(head["result"])
    return SpeechResult(
        params=_params(SamplingParams, result.pop("params")),
        timings=Timings(**result.pop("timings")),
        utterances=spoken,
        **result,
    )


def _utterances(heads: list[dict[str, Any]], arrays: Arrays) -> Iterator[SpokenUtterance]:
    for number, head in enumerate(heads):
        own = f"{number}/trace/"
        trace = {
            name.removeprefix(own): col for name, col in arrays.items() if name.startswith(own)
        }
        rest = dict(head)
        traced = rest.pop("traced")
        yield SpokenUtterance(
            codes=arrays[f"{number}/codes"],
            trace=trace if traced else None,
            backtracks=tuple(Backtrack(**one) for one in rest.pop("backtracks")),
            takes=tuple(RankedTake(**one) for one in rest.pop("takes")),
            words=_words(rest.pop("words")),
            memory=_memory(arrays, f"{number}/"),
            **rest,
        )


def _words(heads: list[dict[str, Any]] | None) -> tuple[WordTiming, ...] | None:
    if heads is None:
        return None
    return tuple(WordTiming(**head | {"phonemes": _phonemes(head["phonemes"])}) for head in heads)


def _phonemes(heads: list[dict[str, Any]] | None) -> tuple[PhonemeTiming, ...] | None:
    return None if heads is None else tuple(PhonemeTiming(**head) for head in heads)


def _memory(arrays: Arrays, own: str) -> SamplerMemory | None:
    if f"{own}mu" not in arrays:
        return None
    return SamplerMemory(arrays[f"{own}mu"], arrays[f"{own}last_act"])


def _plain(of: "DataclassInstance", *without: str) -> dict[str, Any]:
    """Return the fields of a dataclass that JSON has."""
    return {one.name: getattr(of, one.name) for one in fields(of) if one.name not in without}


def _picked(what: object, *names: str) -> dict[str, Any]:
    return {name: getattr(what, name) for name in names}


def _options(params: SamplingParams) -> SamplingParams:
    """Return a request's params without its text and format, which the job and the caller have."""
    kind = SpeechOptions if isinstance(params, SpeechOptions) else SamplingParams
    if type(params) is kind:
        return params
    own = {name: getattr(params, name) for name in params.model_fields_set & set(kind.model_fields)}
    return kind.model_construct(_fields_set=set(own), **own)


def _knobs(params: SamplingParams) -> dict[str, Any]:
    return params.model_dump(mode="json", include=set(SamplingParams.model_fields))


def _params(kind: type[P], dumped: dict[str, Any]) -> P:
    return kind.model_validate(dumped)


def _error(error: SpeechError) -> dict[str, Any]:
    again_s = error.retry_after_s if isinstance(error, Unavailable) else None
    return _picked(error, "code", "message", "param") | {"retry_after_s": again_s}


def _read_error(head: Mapping[str, Any]) -> SpeechError:
    kinds = {kind.code: kind for kind in _kinds(SpeechError)}
    error = SpeechError.__new__(kinds.get(head["code"], SpeechError))
    SpeechError.__init__(error, head["message"], param=head["param"])
    if isinstance(error, Unavailable):
        error.retry_after_s = head["retry_after_s"] or 1
    return error


def _kinds(kind: type[SpeechError]) -> Iterator[type[SpeechError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _kinds(one)


def _plan(plan: Plan) -> dict[str, Any]:
    return _picked(plan, "seed", "language", "nar", "decoder") | {
        "voice": plan.voice.name,
        "params": _knobs(plan.params),
    }


def _read_plan(job: SpeechJob, head: Mapping[str, Any]) -> Plan:
    return Plan(
        job=job,
        params=_params(SamplingParams, head["params"]),
        seed=head["seed"],
        voice=Voice(name=head["voice"]),
        language=head["language"],
        utterances=(),
        text_s=0.0,
        nar=head["nar"],
        decoder=head["decoder"],
    )
