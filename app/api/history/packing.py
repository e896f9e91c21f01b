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

from app.api.history.report import AskedSpeech, Failure, Outcome
from app.api.schemas import SpeechOptions
from app.engine.core import SpeechJob, SpeechResult
from app.engine.results import UtteranceResult
from samplers.knobs.params import SamplingParams

_LEVEL = 1  # of zlib: codes hardly shrink, and traces do at any level

MOST_BYTES = 2**28
"""Longest outcome, unpacked, that is read: more than that of half an hour with its traces."""

_JOB: Final = TypeAdapter(SpeechJob)
_OPTIONS: Final = TypeAdapter(SpeechOptions)
_OUTCOMES: Final[dict[str, TypeAdapter[Any]]] = {
    kind.__name__: TypeAdapter(kind) for kind in (SpeechResult, Failure)
}


def pack_outcome(asked: AskedSpeech, outcome: Outcome, *, traces: bool = True) -> bytes:
    """Return a speech as asked for, without what it continues, and its outcome as bytes."""
    if not traces:
        spoken = tuple(replace(one, trace=None) for one in outcome.utterances)
        outcome = replace(outcome, utterances=spoken)
    arrays: list[np.ndarray[Any, Any]] = []
    kind = type(outcome).__name__
    head = {
        "job": _JOB.dump_python(asked.job, mode="json", exclude={"params", "part"}),
        "options": _dumped(asked.options),
        "kind": kind,
        "outcome": _OUTCOMES[kind].dump_python(outcome, mode="json", context=arrays),
        "voices": [[word.voice for word in one.words or ()] for one in outcome.utterances],
    }
    text = np.frombuffer(json.dumps(head).encode(), np.uint8)
    file = io.BytesIO()
    np.savez(file, text, *arrays, allow_pickle=False)
    return zlib.compress(file.getvalue(), _LEVEL)


def unpack_outcome(packed: bytes, most_bytes: int = MOST_BYTES) -> tuple[AskedSpeech, Outcome]:
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
        options = _OPTIONS.validate_python(head["options"])
        job = _JOB.validate_python(head["job"] | {"params": options.knobs})
        read: Outcome = _OUTCOMES[head["kind"]].validate_python(head["outcome"], context=arrays)
        pairs = zip(read.utterances, head["voices"], strict=True)
        utterances = tuple(_said_by(*pair) for pair in pairs)
        return AskedSpeech(job, options), replace(read, utterances=utterances)
    except Exception as error:  # others may have written it: whatever fails, it is not one of ours
        raise ValueError(f"it cannot be read: {type(error).__name__}: {error}") from error


def _said_by(spoken: UtteranceResult, voices: list[str]) -> UtteranceResult:
    """Return an utterance with the voices of its words, which no JSON of a client has."""
    if spoken.words is None:
        return spoken
    pairs = zip(spoken.words, voices, strict=True)
    return replace(spoken, words=tuple(replace(word, voice=str(name)) for word, name in pairs))


def request_of(asked: AskedSpeech, outcome: Outcome) -> dict[str, Any]:
    """Return the body of a request that gives the same codes, but for its form and its stream.

    It has every knob as used, with preset and seed, and what else the request asked for.
    """
    options = _dumped(asked.options)
    options.pop("model", None)
    chosen = {"input": asked.job.text, "voice": outcome.voice, "language": outcome.language}
    knobs = outcome.params.model_dump(mode="json", include=set(SamplingParams.model_fields))
    return chosen | options | knobs | {name: one for name, one in chosen.items() if one is not None}


def _dumped(options: SpeechOptions) -> dict[str, Any]:
    """Return what was sent of a request's options, without its text and format."""
    fields = options.model_fields_set & set(SpeechOptions.model_fields)
    dumped: dict[str, Any] = options.model_dump(mode="json", include=fields)
    return dumped
