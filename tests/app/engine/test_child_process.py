"""A child process: the answers of this process, and what happens when it is gone."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from app.engine.child_process import ChildProcess, audio_worker
from app.engine.errors import EndedWorker, GenerationFailed
from app.engine.nar.process import table as sound_table
from app.engine.reading import TextProcess
from app.engine.utterance import UtteranceSpec
from models.checkpoints.builtin import read_config
from models.checkpoints.sources import SpeechModel, open_speech_model
from models.config import ModelConfig
from models.text import TextError
from samplers.knobs.params import SamplingParams
from tests.app.engine.worker_tables import table

CPU = torch.device("cpu")
TABLE = "tests.app.engine.worker_tables:table"


class Process(NamedTuple):
    """A process, a call of it that has some answers, and those answers made in this process."""

    worker: ChildProcess
    begin: Callable[[], Any]
    expected: Sequence[Any]


def load_model(toy: Path) -> SpeechModel:
    torch.set_num_threads(1)  # as a service does
    return open_speech_model(toy, CPU)


def fed(utterance: Any) -> Any:
    codes = torch.randint(512, (100,), generator=torch.Generator().manual_seed(0))
    for number, frames in enumerate(codes.split([40, 40, 20])):
        utterance.feed(frames, number == 2)
    return utterance


def comparable(answer: Any) -> Any:
    if hasattr(answer, "samples"):
        return answer.samples.tolist(), answer.decoded.tolist()
    return answer


@pytest.fixture(scope="module", params=["numbers", "sound"])
def process(request: pytest.FixtureRequest, toy: Path) -> Iterator[Process]:
    """One that answers by itself, as the text process, and one that is fed meanwhile."""
    finish: Callable[[Any], Any]
    call: tuple[Any, ...]
    load: Any
    if request.param == "numbers":
        worker, load, here, finish = ChildProcess("numbers", TABLE), 5, table(5), iter
        call = "numbers", 4
    else:
        load = partial(load_model, toy)
        worker, here, finish = audio_worker(), sound_table(load), fed
        call = "utterance", UtteranceSpec([1, 10, 20, 2], SamplingParams(), 1, 0, 100)
    worker.load(load)
    expected = [*map(comparable, finish(here[call[0]](*call[1:])))]
    assert len(expected) >= 4
    yield Process(worker, lambda: finish(worker.iterate(*call)), expected)
    worker.close()


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 2])
def test_calls_one_within_another_all_go_on_where_the_process_was_killed_after_one_that_was_left(
    process: Process, after: int
) -> None:
    generation, found = process.worker.generation, list[list[Any]]()
    assert process.worker.pid is not None
    with closing(process.begin()) as left:
        next(left)
    with closing(process.begin()) as outer, closing(process.begin()) as inner:
        begun = [[comparable(next(one)) for _ in range(after)] for one in (outer, inner)]
        os.kill(process.worker.pid, signal.SIGKILL)
        found += [[*begun[1], *map(comparable, inner)], [*begun[0], *map(comparable, outer)]]
    assert found == [process.expected, process.expected]
    assert process.worker.generation == generation + 1


@pytest.fixture(scope="module")
def worker() -> Iterator[ChildProcess]:
    worker = ChildProcess("functions", TABLE)
    worker.load()
    yield worker
    worker.close()


def test_what_is_raised_there_is_raised_here_with_its_place(worker: ChildProcess) -> None:
    with pytest.raises(KeyError, match="on purpose") as raised:
        next(worker.iterate("fails"))
    assert any("in fails" in note for note in raised.value.__notes__)
    assert next(worker.iterate("add", 1, 2)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 2])
def test_what_ends_the_process_twice_is_refused_from_then_on(
    worker: ChildProcess, after: int
) -> None:
    """A call that waits meanwhile has no part in it, however often it is begun again."""
    waits = worker.iterate("numbers", 9)
    assert next(waits) == 0
    with pytest.raises(EndedWorker):
        list(worker.iterate("ends", after, "first"))
    assert next(waits) == 1
    with pytest.raises(EndedWorker):
        list(worker.iterate("ends", after, "second"))
    generation = worker.generation
    for name in ("first", "second"):
        with pytest.raises(EndedWorker, match="before"):
            worker.iterate("ends", after, name)
    assert [*waits] == [2, 3, 4, 5, 6, 7, 8]
    assert worker.generation == generation
    assert next(worker.iterate("add", 1, 2)) == 3


@pytest.mark.slow
def test_a_text_that_ends_the_process_is_refused_in_words(toy: Path) -> None:
    config = read_config(toy / "lm.json", ModelConfig)
    reader = TextProcess(
        config, ChildProcess("ending", "tests.app.engine.worker_tables:ending_table")
    )

    def read(text: str) -> int:
        *_, read = reader.prepared(text, language="en", max_chars=4096)
        assert read is not None
        return len(read.utterances)

    with closing(reader):
        generations = []
        for _ in range(2):
            with pytest.raises(TextError, match="ends the process"):
                read("Say abracadabra now.")
            generations.append(reader.worker.generation)
        assert generations[0] == generations[1] >= 3
        assert read("Hello there.") == 1


def test_a_table_that_cannot_be_made_is_told_and_tried_again() -> None:
    with closing(ChildProcess("functions", TABLE)) as worker:
        worker.load(1, "an argument too many")
        for generation in (1, 2):
            with pytest.raises(TypeError, match="takes from 0 to 1"):
                worker.ready()
            assert worker.generation == generation


def test_a_model_that_the_sound_process_cannot_load_is_told(tmp_path: Path) -> None:
    with pytest.raises(GenerationFailed, match="could not load"):
        sound_table(partial(open_speech_model, tmp_path / "missing", CPU))


PROGRAM = f"""
import os, signal, sys, time
from app.engine.child_process import ChildProcess

if __name__ == "__main__":
    worker = ChildProcess("functions", "{TABLE}")
    for after_s in (0.0, 0.1, 0.2, 0.4):
        time.sleep(after_s)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(worker.pid, number)
    worker.load()
    print(next(worker.iterate("add", 1, 2)))
    worker.iterate("slow")
    worker.send("next", 1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("last", ["", "os.kill(os.getpid(), signal.SIGTERM)", "os._exit(0)"])
def test_signals_and_a_parent_that_forgets_it_end_it_without_a_word(last: str) -> None:
    """Ctrl-C and SIGTERM are the parent's, from the first moment of the process on."""
    program = [sys.executable, "-c", f"{PROGRAM}    {last}\n"]
    pipe = subprocess.PIPE
    ended = subprocess.run(program, stdout=pipe, stderr=pipe, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == ("3\n", "")
