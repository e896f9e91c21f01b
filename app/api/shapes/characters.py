"""The times of characters, from those of words: each word's characters share its time evenly."""

from collections.abc import Iterable
from typing import NamedTuple

from app.engine.job import WordTimes


class TimedCharacter(NamedTuple):
    """A character of a text, and when it is heard in the audio sent; in seconds."""

    character: str
    start_s: float
    end_s: float


def timed_characters(
    words: Iterable[WordTimes], speed: float, *, normalised: bool = False
) -> list[TimedCharacter]:
    """Return the characters of words with a space after each.

    Args:
        words: In order; those that the sound lacks are left out.
        speed: Of the playback.
        normalised: Whether the characters are those that are spoken, rather than written.
    """
    characters: list[TimedCharacter] = []
    for word in words:
        if word.missing:
            continue
        start_s = word.start_s / speed
        end_s = start_s if word.end_s is None else word.end_s / speed
        told = (word.spoken if normalised else "") or word.word
        each_s = (end_s - start_s) / max(1, len(told))
        characters += [
            TimedCharacter(one, start_s + number * each_s, start_s + (number + 1) * each_s)
            for number, one in enumerate(told)
        ]
        characters.append(TimedCharacter(" ", end_s, end_s))
    return characters
