import io
import math
import zipfile
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.api.history.packing import pack_outcome, unpack_outcome
from app.api.history.report import AskedSpeech, Failure
from app.api.history.writer import report_pieces
from app.api.requests import output_of
from app.api.schemas import SpeechRequest
from app.engine.core import Plan, SpeechResult, Timings
from app.engine.errors import EngineBusy, GenerationFailed, ReaderStalled
from app.engine.results import PhonemeTimes, RankedTake, SamplerMemory, UtteranceResult, WordTimes
from models.voices.voice import Voice
from samplers.ar.backtrack import Backtrack
from samplers.knobs.params import SamplingParams
from tests.fakes import result_of

TRACE: dict[str, np.ndarray[Any, Any]] = {
    "frame": np.arange(3, dtype=np.int32),
    "code": np.array([5, 6, 7], np.int16),
    "score": np.array([0.0, -math.inf, math.nan], np.float32),
    "logprob": np.array([-1.0, -2.0, -3.0], np.float32),
}
WORDS = (
    WordTimes(0, 0, "hello", "hello", 0.1, 0.4, False, (PhonemeTimes("h", 0.1, 0.2),)),
    WordTimes(0, 1, "you", "", 0.4, None, True, None, "emma"),
)
NO_CODES = np.zeros(0, np.int16)
SPOKEN = (
    UtteranceResult(
        np.arange(24, dtype=np.int16).reshape(3, 8),
        "stuck",
        0.25,
        TRACE,
        (Backtrack("loop", 9, 3, 7),),
        (RankedTake(-0.5, 3, "stop", kept=True), RankedTake(-0.75, 4, "length", kept=False)),
        phonemes="həloʊ",
    ),
    UtteranceResult(np.zeros((0, 8), np.int16), "stop"),
)


def asked(**fields) -> AskedSpeech:
    wanted = SpeechRequest(input="Hello.", speed=1.5, loudness_lufs=-16, temperature=0.5, **fields)
    return AskedSpeech(wanted.job("an-id", "alice", "alice"), wanted)


def result() -> SpeechResult:
    params = SamplingParams(seed=3, temperature=0.5)
    times = Timings(*(number / 7 for number in range(8)))
    return result_of(
        *SPOKEN, job_id="an-id", finish_reason="stuck", seed=3, params=params, voice="anna",
        audio_s=1 / 3, timings=times, nar="windows", decoder="vocos", pause_owed_s=0.5,
    )  # fmt: skip


@pytest.mark.parametrize("trace", [False, True])
def test_a_result_comes_back_as_it_was(trace) -> None:
    speech = asked(trace=trace)
    made = result()
    if not trace:
        made = replace(made, utterances=tuple(replace(u, trace=None) for u in SPOKEN))
    read, outcome = unpack_outcome(pack_outcome(speech, made))
    assert isinstance(outcome, SpeechResult)
    assert [*report_pieces(read.job, outcome)] == [*report_pieces(speech.job, made)]
    assert output_of(read.job, "mp3") == output_of(speech.job, "mp3")
    for old, new in zip(made.utterances, outcome.utterances, strict=True):
        np.testing.assert_array_equal(old.codes, new.codes)
        assert (old.codes.dtype, old.codes.shape) == (new.codes.dtype, new.codes.shape)
        assert (old.trace is None) == (new.trace is None)
        for name, column in (old.trace or {}).items():
            np.testing.assert_array_equal(column, (new.trace or {})[name])
    plain = tuple(replace(u, codes=NO_CODES, trace=None) for u in made.utterances)
    again = tuple(replace(u, codes=NO_CODES, trace=None) for u in outcome.utterances)
    assert replace(made, utterances=()) == replace(outcome, utterances=())
    assert repr(plain) == repr(again)


def test_a_trace_can_be_left_out() -> None:
    _, outcome = unpack_outcome(pack_outcome(asked(trace=True), result(), traces=False))
    assert [spoken.trace for spoken in outcome.utterances] == [None, None]
    assert outcome.utterances[0].codes.shape == (3, 8)


@pytest.mark.parametrize(
    "error",
    [
        None,
        ReaderStalled("it did not read"),
        GenerationFailed("broken"),
        EngineBusy("full", retry_after_s=3),
    ],
)
def test_a_failure_comes_back_with_its_report(error) -> None:
    speech = asked()
    plan = Plan(
        speech.job, SamplingParams(seed=9), 9, Voice(name="anna"), "en", (), 0.0, nar="whole"
    )
    for known in (plan, None):
        made = Failure.of(speech.job, known, error, 7, 0.5, SPOKEN)
        read, outcome = unpack_outcome(pack_outcome(speech, made))
        assert outcome.finish_reason == made.finish_reason
        assert [*report_pieces(read.job, outcome)] == [*report_pieces(speech.job, made)]


def test_only_knobs_that_were_sent_count_as_sent() -> None:
    read, _ = unpack_outcome(pack_outcome(asked(), result()))
    assert read.options.model_fields_set == {"speed", "loudness_lufs", "temperature"}
    assert read.job.params.model_fields_set == {"temperature"}


def archive(*arrays: Any, head: bytes = b"{}", **members: bytes) -> bytes:
    """A value as `pack_outcome` makes it, with any arrays, head and further members."""
    file = io.BytesIO()
    np.savez(file, np.frombuffer(head, np.uint8), *arrays, allow_pickle=True)
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as members_of:
        for name, content in members.items():
            members_of.writestr(f"{name}.npy", content)
    return zlib.compress(file.getvalue())


def header_of(shape: tuple[int, ...]) -> bytes:
    """The beginning of an array in a file, without its values."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "|u1", "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


LIMIT_BYTES = 2**18
HOSTILE = {
    "nothing": b"",
    "no zlib": b"nothing",
    "cut off": pack_outcome(asked(), result())[:200],
    "no archive": zlib.compress(b"nothing"),
    "nested": archive(head=b"[" * 100_000),
    "a list": archive(head=b"[]"),
    "a pickle": archive(np.array([{}], object)),
    "a shape of 10^11": archive(arr_1=header_of((10**11,))),
    "inflated twice": archive(arr_1=header_of((10**6,)) + bytes(10**6)),
    "inflated": zlib.compress(bytes(LIMIT_BYTES + 1)),
}


@pytest.mark.parametrize("damage", HOSTILE.values(), ids=HOSTILE)
def test_what_is_damaged_is_refused(damage) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        unpack_outcome(damage, LIMIT_BYTES)


def test_words_and_what_the_sampler_knew_come_back() -> None:
    memory = SamplerMemory(np.array([1.5, 2.5], np.float32), np.array([-9, 1]))
    spoken = replace(SPOKEN[0], words=WORDS, memory=memory)
    _, came = unpack_outcome(pack_outcome(asked(), replace(result(), utterances=(spoken,))))
    (utterance,) = came.utterances
    assert utterance.words == WORDS
    assert utterance.memory is not None
    assert np.array_equal(utterance.memory.mu, memory.mu)
    assert np.array_equal(utterance.memory.last_act, memory.last_act)
