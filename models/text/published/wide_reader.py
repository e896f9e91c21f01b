"""Readers of Chinese and Japanese: they differ in phonemes, signs, and what has no reading."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from models.text.published.languages import LANGUAGES, cleaned_as
from models.text.published.wide_marks import GROUPED, closed, known_symbols
from models.text.reader import Reader


def wide_reader(
    language: str,
    phonemes: Callable[[str], str],
    written: Callable[[str], str],
    unread: Callable[[str], Sequence[str]],
    *,
    as_reference: bool,
) -> Reader:
    """Return a reader that speaks by ``phonemes``.

    It writes out signs of numbers by ``written`` first, and leaves out the characters that
    ``unread`` returns. ``as_reference`` it does neither.
    """
    if as_reference:
        return Reader(lambda text: text, lambda text: closed(phonemes(text)))
    own = replace(LANGUAGES[language], unspelt=unread)
    return Reader(
        lambda text: cleaned_as(text.sub(GROUPED, ""), own),
        lambda text: " ".join(known_symbols(phonemes(written(text))).split()),
    )
