"""The words of a study's command line: grids, knobs, and what they are told when wrong."""

import pytest

from app.commands.errors import CommandError
from app.commands.study.grid import read_fixed, read_varied


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["top_p=0.1:0.9:3"], [0.1, 0.5, 0.9]),
        (["top_k=10:90:3"], [10, 50, 90]),
        (["top_p=0.5:0.9:1"], [0.5]),
        (["top_p=0.5", "0.7"], [0.5, 0.7]),
    ],
)
def test_words_of_a_grid_are_read_as_its_values(words: list[str], values: list[float]) -> None:
    assert [*read_varied(words).values()] == [values]


@pytest.mark.parametrize(
    "grid",
    ["0.1:x:3", "x:1:3", "0:1:x", "0:1:2.5", "0:1:0", "0:1:-3", "::", "0:1:99999999", "nan:1:3",
     "0:inf:3"],
)  # fmt: skip
def test_a_wrong_grid_is_told_how_one_is_written(grid: str) -> None:
    with pytest.raises(CommandError, match="LOW:HIGH:COUNT"):
        read_varied([f"top_p={grid}"])


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("temprature=1", "did you mean temperature"),
        ("topp=0.5", "topp: there is no such field"),
        ("nope=1", "nope: there is no such field"),
        ("repeat_penalty=1.1", "did you mean repetition_penalty"),
        ("top_p=7", "top_p"),
        ("top_p=high", "top_p"),
        ("top_p", "NAME=VALUE"),
    ],
)
def test_a_wrong_knob_is_told_as_a_request_is(word: str, said: str) -> None:
    for read in (read_varied, read_fixed):
        with pytest.raises(CommandError, match=said):
            read([word])
