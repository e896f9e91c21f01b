"""espeak-ng, through phonemizer: words to IPA in one of its voices.

Needs no system package: the library and its data come with `espeakng_loader`.
"""

import logging
import re
from collections.abc import Sequence
from functools import cache
from threading import Lock
from typing import Final

import espeakng_loader
from phonemizer.backend import EspeakBackend
from phonemizer.backend.espeak.wrapper import EspeakWrapper

_NO_MARKS: Final = re.compile("(?!)")

# espeak-ng keeps its state in globals: one call at a time in the whole process.
_ESPEAK: Final = Lock()


def pronounce(texts: Sequence[str], voice: str, *, verbatim: bool = False) -> list[str]:
    """Return the IPA of each text, with stress, without marks where the language switches.

    Args:
        texts: Words, each text spoken for itself.
        voice: espeak-ng's name of the voice, like ``en-us``.
        verbatim: Whether espeak-ng sees punctuation; otherwise phonemizer blanks it first.
    """
    with _ESPEAK:
        return _backend(voice, verbatim).phonemize(texts, strip=True)


@cache
def _backend(voice: str, verbatim: bool) -> EspeakBackend:
    """Return the backend of a voice; the caller holds the lock."""
    EspeakWrapper.set_library(espeakng_loader.get_library_path())
    EspeakWrapper.set_data_path(espeakng_loader.get_data_path())
    # A switch of language inside a sentence is ordinary ("garçon"): not worth a warning each.
    logger = logging.getLogger("phonemizer.espeak")
    logger.setLevel(logging.ERROR)
    return EspeakBackend(
        voice,
        punctuation_marks=_NO_MARKS if verbatim else None,
        with_stress=True,
        language_switch="remove-flags",
        logger=logger,
    )
