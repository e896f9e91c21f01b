"""What a model marks as its reasoning is left out, or read where a request asks for it."""

import pytest

from models.text.incremental.text import GrowingText
from tests.models.text.reading import prepare

THOUGHTS = [
    "<think>I greet. Then I go.</think>Hello!",
    "<thinking>\n\nI greet.\n\nThen I go.\n</thinking>\n\nHello!",
    "<reasoning>I greet. Then I go.</reasoning> Hello!",
    "<thought>I greet. Then I go.</thought>\nHello!",
    "[THINK]I greet. Then I go.[/THINK]Hello!",
    "<seed:think>I greet. Then I go.</seed:think>Hello!",
    '<THINK depth="2">I greet. Then I go.</THINK>Hello!',
]


def in_letters(text: str, *, thoughts: bool) -> list[str]:
    growing = GrowingText(thoughts=thoughts)
    pieces = [piece for letter in text for piece in growing.append(letter)] + growing.end()
    return [one.text for piece in pieces for one in prepare(piece, thoughts=thoughts)]


@pytest.mark.parametrize("text", THOUGHTS, ids=lambda text: text[:12])
def test_thoughts_are_left_out_unless_they_are_asked_for(text: str) -> None:
    assert [one.text for one in prepare(text)] == in_letters(text, thoughts=False) == ["Hello!"]
    spoken = [one.text for one in prepare(text, thoughts=True)]
    assert spoken == in_letters(text, thoughts=True)
    assert spoken[:2] == ["I greet.", "Then I go."]
