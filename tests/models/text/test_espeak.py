"""espeak-ng is native code: no text may overrun its buffers."""

from multiprocessing import get_context

import pytest

from models.text.espeak import MOST_LETTERS, pronounce

SEEN = {
    "an apostrophe and a letter": "'s" * 68,
    "the same, curly": "’s" * 200,  # noqa: RUF001
    "an accent in place of an apostrophe": "S´" * 2048,  # noqa: RUF001
    "full stops before letters": ".é" * 150,
    "the same in words": (".é" * 4 + " ") * 40,
    "abbreviations": "e.g. " * 120,
}
"""What ended the process once."""


def survived(words: list[str], voice: str, *, verbatim: bool) -> bool:
    """Return whether a process of its own lives on after it pronounced some words."""
    process = get_context("spawn").Process(
        target=pronounce, args=(words, voice), kwargs={"verbatim": verbatim}
    )
    process.start()
    process.join()
    return process.exitcode == 0


@pytest.mark.slow
@pytest.mark.parametrize("verbatim", [False, True])
@pytest.mark.parametrize("text", SEEN)
def test_no_word_that_ended_the_process_does_so_again(text: str, verbatim: bool) -> None:
    assert survived([SEEN[text]], "en-us", verbatim=verbatim)


@pytest.mark.parametrize("word", ["a" * MOST_LETTERS, "y'all'd've", "pneumonia", "rock'n'roll"])
def test_words_that_people_write_are_not_divided(word: str) -> None:
    assert " " not in pronounce([word], "en-us")[0]
