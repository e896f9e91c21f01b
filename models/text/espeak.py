"""Words to IPA with espeak-ng, through phonemizer.

Needs no system package: library and data come with `espeakng_loader`.
"""

import logging
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from phonemizer.backend import EspeakBackend


MOST_LETTERS: Final = 48
"""Longest word that is passed to espeak-ng: some of 136 characters overran its buffers and ended
the process. The longest word of English dictionaries has 45 letters."""

_NO_MARKS: Final = re.compile("(?!)")
_LONG: Final = re.compile(rf"\S{{{MOST_LETTERS}}}(?=\S)")
# A hundred words that begin with one, or abbreviations, overran a buffer, too.
_FULL_STOP: Final = re.compile(r"(?<![0-9])\.|\.(?![0-9])")
_APOSTROPHES: Final = "'`´‘’ʼ"  # noqa: RUF001
_WORD: Final = re.compile(r"\S+")
_APOSTROPHE: Final = re.compile(f"[{_APOSTROPHES}]")

# espeak-ng keeps its state in globals: one call at a time in a process.
_ESPEAK: Final = Lock()


def pronounce(texts: Sequence[str], voice: str, *, verbatim: bool = False) -> list[str]:
    """Return the IPA of each text, with stress marks and without language-switch flags.

    What is too long for espeak-ng is read as several words, and full stops are ignored but between
    digits. Phonemizer removes punctuation before, unless ``verbatim``.
    """
    with _ESPEAK:
        return _backend(voice, verbatim).phonemize(list(map(_bounded, texts)), strip=True)


def _bounded(text: str) -> str:
    """Return a text without what overruns the buffers of espeak-ng."""
    return _LONG.sub(r"\g<0> ", _WORD.sub(_divided, _FULL_STOP.sub(" ", text)))


def _divided(word: re.Match[str]) -> str:
    """Return a word with a space after every fourth apostrophe within it."""
    ends = [one.end() for one in _APOSTROPHE.finditer(word[0])][3::4]
    bounds = pairwise([0, *ends, len(word[0])])
    return " ".join(word[0][start:end] for start, end in bounds if start < end)


@cache
def _backend(voice: str, verbatim: bool) -> "EspeakBackend":
    """Return the backend of a voice; call with the lock held."""
    import espeakng_loader
    from phonemizer.backend import EspeakBackend
    from phonemizer.backend.espeak.wrapper import EspeakWrapper

    EspeakWrapper.set_library(espeakng_loader.get_library_path())
    EspeakWrapper.set_data_path(espeakng_loader.get_data_path())
    # Silences warnings of language switches within a sentence ("garçon"), which are common.
    logger = logging.getLogger("phonemizer.espeak")
    logger.setLevel(logging.ERROR)
    return EspeakBackend(
        voice,
        punctuation_marks=_NO_MARKS if verbatim else None,
        with_stress=True,
        language_switch="remove-flags",
        logger=logger,
    )
