"""Speeches and their outcomes as bytes, and as the body of a request that speaks them again.

What is small is JSON, and codes and traces are in numpy's own format without pickled objects: what
comes out of a shared store is data and never code.
"""

import io
import json
import zlib
from dataclasses import replace
from typing import Any, Final
from zipfile import ZipFile

import numpy as np
from pydantic import TypeAdapter

from app.api.history.report import Failure, Outcome
from app.api.schemas import SpeechOptions
from app.engine.job import (
    SpeechJob,
    SpeechResult,
    UtteranceResult,
)
from samplers.knobs.params import SamplingParams

_LEVEL = 1  # of zlib: codes hardly shrink, and traces do at any level

MOST_BYTES = 2**28
"""Longest outcome, unpacked, that is read: more than that of half an hour with its traces."""

_JOB: Final = TypeAdapter(SpeechJob)
_OPTIONS: Final = TypeAdapter(SpeechOptions)
_OUTCOMES: Final[dict[str, TypeAdapter[Any]]] = {
    kind.__name__: TypeAdapter(kind) for kind in (SpeechResult, Failure)
}


def pack_outcome(job: SpeechJob, outcome: Outcome, *, traces: bool = True) -> bytes:
    """Return a job, without what it continues, and its outcome as bytes."""
    if not traces:
        spoken = tuple(replace(one, trace=None) for one in outcome.utterances)
        outcome = replace(outcome, utterances=spoken)
    arrays: list[np.ndarray[Any, Any]] = []
    kind = type(outcome).__name__
    head = {
        "job": _JOB.dump_python(job, mode="json", exclude={"params", "before", "kept"}),
        "params": _OPTIONS.dump_python(_options(job), mode="json", exclude_unset=True),
        "kind": kind,
        "outcome": _OUTCOMES[kind].dump_python(outcome, mode="json", context=arrays),
        "voices": [[word.voice for word in one.words or ()] for one in outcome.utterances],
    }
    text = np.frombuffer(json.dumps(head).encode(), np.uint8)
    file = io.BytesIO()
    np.savez(file, text, *arrays, allow_pickle=False)
    return zlib.compress(file.getvalue(), _LEVEL)


def unpack_outcome(packed: bytes, most_bytes: int = MOST_BYTES) -> tuple[SpeechJob, Outcome]:
    """Return what was packed; raises ValueError if it is damaged, or of another version."""
    try:
        inflater = zlib.decompressobj()
        raw = inflater.decompress(packed, most_bytes)
        if not inflater.eof:
            raise ValueError(f"it is cut off, or has more than {most_bytes} bytes")
        with ZipFile(io.BytesIO(raw)) as file:
            if sum(one.file_size for one in file.infolist()) > len(raw):
                raise ValueError("its arrays are compressed twice")
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            text, *arrays = (file[f"arr_{number}"] for number in range(len(file.files)))
        head = json.loads(text.tobytes())
        params = _OPTIONS.validate_python(head["params"])
        job = _JOB.validate_python(head["job"] | {"params": params})
        read: Outcome = _OUTCOMES[head["kind"]].validate_python(head["outcome"], context=arrays)
        pairs = zip(read.utterances, head["voices"], strict=True)
        return job, replace(read, utterances=tuple(_said_by(*pair) for pair in pairs))
    except Exception as error:  # others may have written it: whatever fails, it is not one of ours
        raise ValueError(f"it cannot be read: {type(error).__name__}: {error}") from error


def _said_by(spoken: UtteranceResult, voices: list[str]) -> UtteranceResult:
    """Return an utterance with the voices of its words, which no JSON of a client has."""
    if spoken.words is None:
        return spoken
    pairs = zip(spoken.words, voices, strict=True)
    return replace(spoken, words=tuple(replace(word, voice=str(name)) for word, name in pairs))


def request_of(job: SpeechJob, outcome: Outcome) -> dict[str, Any]:
    """Return the body of a request that gives the same codes, but for its form and its stream.

    It has every knob as used, with preset and seed, and what else the request asked for.
    """
    asked: dict[str, Any] = _OPTIONS.dump_python(_options(job), mode="json", exclude_unset=True)
    asked.pop("model", None)
    chosen = {"input": job.text, "voice": outcome.voice, "language": outcome.language}
    knobs = outcome.params.model_dump(mode="json", include=set(SamplingParams.model_fields))
    return chosen | asked | knobs | {name: one for name, one in chosen.items() if one is not None}


def _options(job: SpeechJob) -> SpeechOptions:
    """Return a request's options, without its text and format, which job and caller have."""
    params = job.params
    own = {
        name: getattr(params, name)
        for name in params.model_fields_set & set(SpeechOptions.model_fields)
    }
    return SpeechOptions.model_construct(_fields_set=set(own), **own)
