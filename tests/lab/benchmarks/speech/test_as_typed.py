"""A typed text is compared with the whole, and what differs is found."""

from itertools import islice
from pathlib import Path

import pytest

from lab.benchmarks.speech import as_typed
from models.checkpoints.builtin import read_config
from models.config import ModelConfig
from models.text import FrontEnd

TEXT = "It costs 5 million dollars to read. The end came to all of us!"


@pytest.fixture(scope="module")
def front_end(toy: Path) -> FrontEnd:
    return FrontEnd(read_config(toy / "lm.json", ModelConfig))


@pytest.mark.parametrize("lookahead", as_typed.LOOKAHEADS)
def test_what_is_read_alike_has_no_fault(front_end, lookahead) -> None:
    assert not as_typed.fault_of(front_end, TEXT, lookahead)


def test_words_that_are_spoken_before_they_are_certain_are_found(front_end, monkeypatch) -> None:
    monkeypatch.setattr("models.text.incremental.text.certain_end", len)
    assert "is no beginning of" in as_typed.fault_of(front_end, TEXT, 1)


def test_a_text_that_is_refused_as_a_whole_is_not_compared(front_end) -> None:
    assert not as_typed.fault_of(front_end, "…", 1)


def test_there_are_a_thousand_texts() -> None:
    texts = [*islice(dict.fromkeys(as_typed.all_texts()), 1000)]
    assert len(texts) == 1000
    assert all(text.strip() for text in texts)
