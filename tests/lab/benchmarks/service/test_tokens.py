"""Tokens are a text in pieces, and every protocol sends all of it."""

import asyncio
from pathlib import Path

import pytest

from app.settings import Settings
from lab.benchmarks.harness.instrumented import observed_app
from lab.benchmarks.harness.served import served_here
from lab.benchmarks.service import tokens

TEXT = "The quick brown fox jumps. It was extraordinarily late."


def test_tokens_together_are_the_text_in_pieces_of_at_most_six() -> None:
    pieces = tokens.tokens(TEXT)
    assert "".join(pieces) == TEXT
    assert max(map(len, pieces)) <= 6
    assert len(pieces) > len(TEXT.split())


@pytest.mark.parametrize("name", tokens.SOCKETS)
def test_every_protocol_sends_the_whole_text(name) -> None:
    sent = tokens.SOCKETS[name].messages(1, tokens.tokens(TEXT))
    assert " ".join("".join(one["text"] for one in sent).split()) == TEXT
    assert len(sent) == len(tokens.tokens(TEXT))


def test_each_sentence_of_a_file_comes_with_the_next_which_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("One.\nTwo.\nThree.\n", "utf-8")
    assert tokens.sentences_in_pairs(path, 9) == ["One. Two.", "Two. Three.", "Three. One."]
    assert tokens.sentences_in_pairs(path, 1) == ["One. Two."]


@pytest.mark.slow
def test_a_row_for_each_protocol_and_rate(toy: Path) -> None:
    settings = Settings(model=str(toy), device="cpu", aliases="heart=toy")
    with served_here(observed_app(settings)) as url:
        rows = asyncio.run(tokens.measure(url, [TEXT, TEXT], tokens.SOCKETS, (80,)))
    assert [row["socket"] for row in rows] == [*tokens.SOCKETS]
    assert all(row["takes"] == 1 for row in rows)
