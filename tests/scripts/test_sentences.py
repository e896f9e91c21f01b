"""The script that counts long sentences, and what it finds in README.md and docs/."""

from pathlib import Path

import pytest

from scripts.sentences import LONG, LONGEST, pages, sentences

PAGE = Path("page.md")


def words_of(text: str) -> list[int]:
    return [one.words for one in sentences(PAGE, text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("One two. Three four five.", [2, 3]),
        ("One\ntwo.\n\nThree.", [2, 1]),
        ("- One two\n- Three\n  four.\n1. Five.", [2, 2, 1]),
        ("See [a long page](docs/page.md#part), and `a b c`.", [6]),
        ("See https://a.example/b.c.d now. Then go.", [3, 2]),
        ("It costs 1,000.5 dollars, e.g. here.", [6]),
        ("It says `ready in 8.3 s.` first. Yes!", [4, 1]),
        ("*One.* **Two three.** Four?", [1, 2, 1]),
        ("Ready in ... seconds: wait.", [4]),
        ("One = two.", [2]),
        ("# A heading of words\n\nOne.", [1]),
        ("| a cell. of words |\n| --- |\n\nOne.", [1]),
        ("One.\n\n```sh\nmany words of code\n```\n\nTwo.", [1, 1]),
        ("<!-- a comment. of words -->\nOne.", [1]),
    ],
)
def test_words_of_a_sentence_are_counted_without_its_markup(text: str, words: list[int]) -> None:
    assert words_of(text) == words


def test_a_sentence_knows_the_line_of_its_block() -> None:
    text = "# Title\n\nOne. Two.\n\n```\ncode\n```\n\n- Three.\n"
    assert [(one.line, one.text) for one in sentences(PAGE, text)] == [
        (3, "One."),
        (3, "Two."),
        (9, "Three."),
    ]


def test_the_pages_have_few_long_sentences_and_none_that_is_very_long() -> None:
    found = [one for path in pages() for one in sentences(path, path.read_text("utf-8"))]
    assert len(found) > 1000
    assert [one for one in found if one.words > LONGEST] == []
    assert sum(one.words > LONG for one in found) / len(found) < 0.05
