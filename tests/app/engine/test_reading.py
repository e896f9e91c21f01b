"""Texts read in another process: the same utterances, the same refusals, in any order."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.engine.backend.synthesizer import Synthesizer
from app.engine.child_process import ModelWorkers
from app.engine.core import SpeechJob
from app.engine.errors import InvalidRequest
from app.engine.reading import TextProcess
from lab.benchmarks.service.attack import TEXTS
from models.checkpoints.builtin import read_config
from models.config import ModelConfig
from models.text import FrontEnd, Prepared, TextError
from samplers.knobs.params import SamplingParams
from tests.app.tools.serving import settings_of

SPOKEN = [
    "Hello there.",
    "One. [pause:0.5s] Two, [[həloʊ]] and £3.50! [voice:emma] Three? [rate:2] Four. Five.",
    "Dr. Smith paid $1,234.56 on 3 May 2024. " * 20,
]
REFUSED = ["", " ", "\x00", "[[", "…", "漢字", "x" * 5000, TEXTS["digits"], "√" * 4096]


@pytest.fixture(scope="module")
def local(toy: Path) -> FrontEnd:
    return FrontEnd(read_config(toy / "lm.json", ModelConfig))


@pytest.fixture(scope="module")
def remote(toy: Path) -> Iterator[TextProcess]:
    with closing(TextProcess(read_config(toy / "lm.json", ModelConfig))) as process:
        yield process


HOW: Any = {"language": "en", "max_chars": 4096}


def outcome(reader: FrontEnd | TextProcess, text: str) -> tuple[Any, ...]:
    """What comes of a text: pieces, the last its utterances, and their words, or why not."""
    pieces: list[Prepared | None] = []
    try:
        for piece in reader.prepared(text, **HOW):
            pieces.append(piece)
    except TextError as error:
        return pieces, str(error)
    assert pieces[-1] is not None
    return pieces, [reader.words(one, language="en") for one in pieces[-1].utterances]


@pytest.mark.parametrize("text", [*SPOKEN, *REFUSED], ids=lambda text: ascii(text[:6]))
def test_what_is_read_or_refused_here_is_there_in_the_same_words_also_amid_another_text(
    text, local, remote
):
    expected, (around, _) = outcome(local, text), outcome(local, SPOKEN[1])
    begun, left = (remote.prepared(SPOKEN[1], **HOW) for _ in range(2))
    assert (next(begun), next(left)) == (None, None)
    left.close()
    assert isinstance(expected[1], str) == (text in REFUSED)
    assert outcome(remote, text) == expected
    assert [*begun] == around[1:]


@pytest.mark.slow
def test_a_service_reads_no_text_in_the_process_that_draws(toy, local, monkeypatch):
    """Or each step of level 0 would wait for the interpreter's lock, some times."""
    wanted = outcome(local, SPOKEN[2])[0][-1]

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a text was read here")

    def job(text: str) -> SpeechJob:
        return SpeechJob("id", text, SamplingParams(seed=1))

    settings = settings_of(toy, text_process=True)
    monkeypatch.setattr("models.text.front_end.pieces", never)
    monkeypatch.setattr("models.text.front_end.word_spans", never)
    with pytest.raises(AssertionError, match="read here"):
        outcome(local, "Hello there.")
    with closing(Synthesizer.load(settings, started=ModelWorkers())) as there:
        assert [*there.planner.plan(job(SPOKEN[2])).utterances] == wanted.utterances
        assert [*there.planner.read(job(SPOKEN[2])).utterances] == wanted.utterances
        with pytest.raises(InvalidRequest, match="characters once numbers"):
            there.planner.plan(job(TEXTS["digits"]))
