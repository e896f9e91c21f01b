"""How long the speech of a text lasts, with its pauses and at its speed, and the limit of it."""

from collections.abc import Sequence

from app.engine.errors import InvalidRequest
from app.engine.results import UtteranceResult
from models.text import Utterance


def spoken_symbols(utterances: Sequence[Utterance] | Sequence[UtteranceResult]) -> float:
    """Return how many phoneme symbols some utterances are as long as, at their rates."""
    return sum(len(one.phonemes) / one.rate for one in utterances)


def pauses_s(
    utterances: Sequence[Utterance] | Sequence[UtteranceResult], pause_s: float, *, more: bool
) -> float:
    """Return the seconds of silence between and after the utterances of a job.

    The last pause counts in any case if there is ``more``: a later job continues the speech.
    """
    asked = [one.pause_after_s for one in utterances]
    total_s = sum(pause_s if one is None else one for one in asked)
    if asked and asked[-1] is None and not more:
        total_s -= pause_s  # nothing follows
    return total_s


def stretched(length: float, speed: float) -> float:
    """Return a length of speech as it is held or sent: longer at a speed below 1, never shorter."""
    return max(1.0, 1.0 / speed) * length


def check_audio_s(
    sound_s: float, silence_s: float, speed: float, most_s: float, *, param: str = "input"
) -> None:
    """Raise InvalidRequest if the audio of a text, or of codes played again, is too long."""
    lasts_s = stretched(sound_s + silence_s, speed)
    if lasts_s > most_s:
        raise InvalidRequest(
            f"the speech would last about {lasts_s:.0f} s with its pauses and its speed,"
            f" at most {most_s:g} s are allowed",
            param=param,
        )
