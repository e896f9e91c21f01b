"""Texts read in another process: the same utterances, the same refusals, in any order."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.engine.backend.synthesizer import Synthesizer
from app.engine.errors import InvalidRequest
from app.engine.job import SpeechJob
from app.engine.reading import TextProcess
from app.engine.worker import ModelWorkers
from benchmarks.service.attack import TEXTS
from models.checkpoints.builtin import read_config
from models.config import ModelConfig
from models.text import FrontEnd, TextError, Utterance
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


def prepared(
    reader: FrontEnd | TextProcess, text: str, on_piece: Callable[[], object] = lambda: None
) -> list[Utterance]:
    with closing(reader.prepared(text, language="en", max_chars=4096)) as pieces:
        for utterances in pieces:
            if utterances is not None:
                return utterances
            on_piece()
    raise AssertionError("no utterances came")


def outcome(reader: FrontEnd | TextProcess, text: str) -> tuple[Any, ...]:
    """What comes of a text: pieces, utterances and their words, or why it is refused."""
    pieces: list[int] = []
    try:
        utterances = prepared(reader, text, lambda: pieces.append(1))
    except TextError as error:
        return pieces, str(error)
    return pieces, utterances, [reader.words(one, language="en") for one in utterances]


@pytest.mark.parametrize("text", [*SPOKEN, *REFUSED], ids=lambda text: ascii(text[:6]))
def test_what_is_read_or_refused_here_is_there_in_the_same_words(text, local, remote):
    expected = outcome(local, text)
    assert len(expected) == (2 if text in REFUSED else 3)
    assert outcome(remote, text) == expected


def test_other_texts_are_read_between_two_pieces(local, remote):
    """To any depth, refused ones and such as are given up among them."""
    inner = []

    def fails() -> None:
        raise KeyError("on purpose")

    def between() -> None:
        inner.append(prepared(remote, SPOKEN[1], lambda: prepared(remote, "One.")))
        with pytest.raises(TextError):
            prepared(remote, "[[")
        with pytest.raises(KeyError):
            prepared(remote, SPOKEN[2], fails)

    assert prepared(remote, SPOKEN[2], between) == prepared(local, SPOKEN[2])
    assert len(inner) == 20
    assert all(one == prepared(local, SPOKEN[1]) for one in inner)


def test_a_service_reads_no_text_in_the_process_that_draws(toy, local, monkeypatch):
    """Or each step of level 0 would wait for the interpreter's lock, some times."""
    wanted = prepared(local, SPOKEN[2])

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a text was read here")

    def job(text: str) -> SpeechJob:
        return SpeechJob("id", text, SamplingParams(seed=1))

    settings = settings_of(toy, voice_process=False)
    monkeypatch.setattr("models.text.front_end.prepared", never)
    monkeypatch.setattr("models.text.front_end.word_spans", never)
    with pytest.raises(AssertionError, match="read here"):
        prepared(local, "Hello there.")
    with closing(Synthesizer.load(settings, started=ModelWorkers())) as there:
        assert [*there.plan(job(SPOKEN[2])).utterances] == wanted
        assert [*there.read(job(SPOKEN[2])).utterances] == wanted
        with pytest.raises(InvalidRequest, match="characters once numbers"):
            there.plan(job(TEXTS["digits"]))
