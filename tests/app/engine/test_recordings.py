"""Recordings in a process of their own: what ends it is told of the file, and the next is read."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from threading import Timer

import pytest

from app.engine.child_process import ChildProcess, Limits
from app.engine.errors import InvalidRequest, SpeechError, Unavailable
from app.engine.recordings import RecordingProcess
from models.voices.recording import read_recording
from tests.speech_like import packed, speech_like

TABLE = "tests.app.engine.worker_tables:recordings_table"
GOOD = packed(speech_like(1.2))


@pytest.fixture(scope="module")
def worker() -> Iterator[ChildProcess]:
    """A process that does what a file says before it reads one."""
    limits = Limits(answer_s=100.0, idle_s=2.0, again=False)
    with closing(ChildProcess("recordings", TABLE, limits=limits)) as worker:
        worker.load()
        yield worker


@pytest.fixture
def process(worker: ChildProcess) -> RecordingProcess:
    return RecordingProcess(worker)


def refusal(process: RecordingProcess, content: bytes) -> SpeechError:
    with pytest.raises(SpeechError) as raised:
        process.read(content)
    return raised.value


def test_a_recording_is_read_as_in_this_process(process: RecordingProcess) -> None:
    there, here = process.read(GOOD, 0.0), read_recording(GOOD, 0.0)
    assert (there.samples.tolist(), there.rate_hz) == (here.samples.tolist(), here.rate_hz)
    assert there.warnings == here.warnings


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (b"memory", "takes too much memory"),
        (b"libav", "takes too much memory"),
        (b"processor", "takes more than 10 s"),
        (b"signal 11", "ends the process"),
        (b"signal 6", "ends the process"),
        (b"signal 9", "ends the process"),
        (b"exit", "ends the process"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.decode(),
)
def test_what_ends_the_process_is_said_of_the_file_and_not_tried_again(
    process: RecordingProcess, worker: ChildProcess, file: bytes, reason: str
) -> None:
    before = worker.generation
    first = refusal(process, file)
    assert isinstance(first, InvalidRequest)
    assert (first.param, reason in first.message) == ("file", True)
    assert process.read(GOOD).audio_s > 1
    assert refusal(process, file).message == first.message
    assert worker.generation == before + 1


def test_what_cannot_be_used_is_refused_in_words_and_the_process_stays(
    process: RecordingProcess, worker: ChildProcess
) -> None:
    before = worker.generation
    error = refusal(process, b"no sound at all")
    assert isinstance(error, InvalidRequest)
    assert error.message.startswith("the audio cannot be used: send WAV, FLAC")
    assert worker.generation == before


@pytest.mark.slow
def test_a_process_that_was_stopped_is_replaced_and_the_recording_read(
    process: RecordingProcess, worker: ChildProcess
) -> None:
    worker.ready()
    before = worker.generation
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    assert process.read(GOOD + b" ").audio_s > 1
    assert worker.generation == before + 1


def test_a_process_that_was_stopped_for_a_moment_goes_on(
    process: RecordingProcess, worker: ChildProcess
) -> None:
    worker.ready()
    before, pid = worker.generation, worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    timer = Timer(0.5, os.kill, (pid, signal.SIGCONT))
    timer.start()
    assert process.read(GOOD + b"  ").audio_s > 1
    timer.join()
    assert worker.generation == before


@pytest.mark.slow
def test_one_that_takes_too_long_is_given_up_and_the_next_read() -> None:
    """Whether it is at fault, or others have the processors, is told apart by what it computed."""
    limits = Limits(answer_s=2.0, again=False)
    worker = ChildProcess("recordings", TABLE, limits=limits)
    worker.load()
    with closing(RecordingProcess(worker)) as process:
        assert process.read(GOOD).audio_s > 1
        error = refusal(process, b"loop")
        late = isinstance(error, InvalidRequest) and "takes more than 10 s" in error.message
        assert late or isinstance(error, Unavailable)
        assert process.read(GOOD).audio_s > 1


def test_a_process_is_started_with_the_first_recording() -> None:
    with closing(RecordingProcess()) as process:
        assert process.silent_s == 0
        assert process.read(GOOD).audio_s > 1
