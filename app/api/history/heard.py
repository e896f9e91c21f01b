"""What a speech itself gives reason to warn of, once it was made."""

from collections.abc import Sequence
from typing import Final

from app.engine.results import UtteranceResult

LONGEST_AFTER_S: Final = 0.4
"""Seconds of sound after a last word, above which some of the text is likely said again."""


def sounds_after(utterances: Sequence[UtteranceResult]) -> list[str]:
    """Return a sentence for each utterance that goes on for long after its last word."""
    return [
        f"the speech goes on for {one.sound_after_s:.1f} s after the end of {one.text[-40:]!r}; it"
        " may say some of it again: another seed helps, or best_of"
        for one in utterances
        if one.sound_after_s is not None and one.sound_after_s > LONGEST_AFTER_S
    ]
