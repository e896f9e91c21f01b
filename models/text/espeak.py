"""Words to IPA with espeak-ng, through phonemizer.

Needs no system package: library and data come with `espeakng_loader`.
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

# espeak-ng keeps its state in globals: one call at a time in a process.
_ESPEAK: Final = Lock()


def pronounce(texts: Sequence[str], voice: str, *, verbatim: bool = False) -> list[str]:
    """Return the IPA of each text, with stress marks and without language-switch flags.

    Args:
        texts: Words; each text is pronounced independently.
        voice: A voice of espeak-ng, such as ``en-us``.
        verbatim: Pass punctuation to espeak-ng; otherwise phonemizer removes it first.
    """
    with _ESPEAK:
        return _backend(voice, verbatim).phonemize(texts, strip=True)


@cache
def _backend(voice: str, verbatim: bool) -> EspeakBackend:
    """Return the backend of a voice; call with the lock held."""
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
