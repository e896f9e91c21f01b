"""The texts that the voice is judged on, and how their takes are counted."""

import pytest

from lab.training.judging.judges import HEARING_RATE_HZ
from lab.training.judging.texts import (
    HEAD,
    MARKS,
    JudgedTake,
    Task,
    joined,
    judge,
    summary,
    texts_of,
)


@pytest.mark.parametrize(
    ("part", "count"),
    [("prose", 120), ("chat", 120), ("ordinary", 200), ("long", 40), ("marks", 40 * len(MARKS))],
)
def test_a_part_has_as_many_texts_as_its_page_says_and_none_twice(part: str, count: int) -> None:
    texts = texts_of(part)
    assert len(texts) >= count
    assert len(set(texts)) == len(texts)
    assert all(text.strip() == text for text in texts if part != "marks")


def test_ordinary_sentences_have_12_to_25_words_and_a_full_stop() -> None:
    texts = texts_of("ordinary")
    assert all(12 <= len(text.split()) <= 25 for text in texts)
    assert {text[-1] for text in texts} == {"."}


def test_takes_are_heard_together_as_long_as_a_clip_may_be() -> None:
    second = HEARING_RATE_HZ
    assert list(joined([10 * second, 16 * second, second, 40 * second, second])) == [
        slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 5),
    ]  # fmt: skip
    assert list(joined([])) == []


def test_a_row_counts_words_takes_with_more_of_them_and_ends() -> None:
    clean = JudgedTake("chat", "Hi.", "heart", 1, 2.0, ("stop",), (), 0.1, False, words=10)
    again = JudgedTake(
        "chat", "Yes.", "heart", 1, 3.0, ("aligned", "stop"), ("repeat",), 0.5, True,
        words=10, wrong=1, lost=1, added=2,
    )  # fmt: skip
    row = summary([clean, again])
    assert row == "| chat | heart | 2 | 20.0 % | 1 | 1 | 2 | 1 | 1 | 1 | 1 | 1 | 5 |"
    assert row.count("|") == HEAD.splitlines()[0].count("|")


def test_takes_that_nobody_heard_have_no_words_but_their_alignment(toy) -> None:
    texts = ["One.", "Two."]
    task = Task("lines", texts, None, 1, str(toy), {}, hears=False)
    takes = judge(task)
    assert [take.text for take in takes] == texts
    assert all(take.words is None and take.seconds > 0 for take in takes)
    assert summary(takes).startswith("| lines | None | 2 | - | - | - | - | - | ")
