"""Whether several streams can all be made in real time, and when one more can begin.

The model of the engine is a fluid server, earliest deadline first: it makes ``speed`` seconds of
audio a second, for the stream whose buffer runs out first. It meets all deadlines if, up to every
time, no more audio is due than it can have made (Liu and Layland 1973; here for work that is known
at the start).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.engine.errors import InvalidRequest
from app.engine.job import SpokenUtterance
from models.text import Utterance

STEP_S = 0.1  # of the simulation
LONGEST_S = 60.0  # longer waits are reported as this


@dataclass(slots=True)
class Stream:
    """The audio of one job.

    Attributes:
        lead_s: Seconds of audio that are made and not played.
        left_s: Seconds of audio that are still to be made.
        plays: Whether its playback has begun; a beginning can be delayed.
        next_s: Seconds in which its next audio comes, if that takes longer than usual.
    """

    lead_s: float
    left_s: float
    plays: bool = False
    next_s: float = 0.0


def pauses_s(
    utterances: Sequence[Utterance] | Sequence[SpokenUtterance], pause_s: float, *, more: bool
) -> float:
    """Return the seconds of silence between and after the utterances of a job.

    Args:
        utterances: Of the job.
        pause_s: Seconds of silence between two of them where the text asks for no other.
        more: Whether a later job continues the speech, so that the last pause counts in any case.
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
    """Do nothing if audio is not longer than allowed: of a text, or of codes that are played again.

    Args:
        sound_s: Seconds of speech at the rates of its utterances.
        silence_s: Seconds of pauses.
        speed: Of the playback.
        most_s: The limit.
        param: The field of the request at fault.

    Raises:
        InvalidRequest: It is longer.
    """
    lasts_s = stretched(sound_s + silence_s, speed)
    if lasts_s > most_s:
        raise InvalidRequest(
            f"the speech would last about {lasts_s:.0f} s with its pauses and its speed,"
            f" at most {most_s:g} s are allowed",
            param=param,
        )


def keeps_up(streams: Sequence[Stream], speed: float) -> bool:
    """Return whether no stream stalls.

    The audio due up to a time t is ``min(left, t - lead)`` of each stream that has used up its
    lead. As a function of t it is steepest before the end of a stream, so only ends are checked.

    Args:
        speed: Seconds of audio made a second.
    """
    begins = [(one.lead_s, 1) for one in streams]
    ends = [(one.lead_s + one.left_s, -1) for one in streams]
    due_s = at_s = 0.0
    playing = 0  # streams that have used up their lead and have not ended
    for time_s, change in sorted(begins + ends):
        due_s += playing * (time_s - at_s)
        at_s, playing = time_s, playing + change
        if change < 0 and due_s > speed * time_s:
            return False
    return True


def fits(
    streams: Sequence[Stream], newcomer_s: float, speed: float, blocking_s: float = 0.0
) -> bool:
    """Return whether one more stream can begin without a stall of any.

    True where none runs: waiting would not help the new one.

    Args:
        streams: Those that run.
        newcomer_s: Expected seconds of audio of the new one.
        speed: Seconds of audio made a second.
        blocking_s: Longest time for which work on one stream delays the others: each that plays
            must have so much audio buffered for each stream that begins, beside its ``next_s``.
    """
    if not streams:
        return True
    beginning = 1 + sum(not one.plays for one in streams)
    needed_s = beginning * blocking_s
    if any(one.plays and one.left_s and one.lead_s < needed_s + one.next_s for one in streams):
        return False
    return keeps_up([*streams, Stream(0.0, newcomer_s)], speed)


def wait_s(
    streams: Sequence[Stream],
    ahead_s: Sequence[float],
    newcomer_s: float,
    speed: float,
    blocking_s: float = 0.0,
) -> float:
    """Return in how many seconds a new stream can begin, at most `LONGEST_S`.

    Args:
        streams: Those that run; not changed.
        ahead_s: Expected seconds of audio of those that wait before it, in their order.
        newcomer_s: Expected seconds of audio of the new one.
        speed: Seconds of audio made a second.
        blocking_s: As for `fits`.
    """
    running = list(streams)
    waited_s = 0.0
    for length_s in (*ahead_s, newcomer_s):
        while not fits(running, length_s, speed, blocking_s):
            if waited_s >= LONGEST_S:
                return LONGEST_S
            running = _later(running, speed)
            waited_s += STEP_S
        running.append(Stream(0.0, length_s))
    return waited_s


def _later(streams: Sequence[Stream], speed: float) -> list[Stream]:
    """Return the streams that are not complete `STEP_S` later, as they are then."""
    budget_s = speed * STEP_S
    later = []
    for one in sorted(streams, key=lambda stream: stream.lead_s):
        made_s = min(one.left_s, budget_s)
        budget_s -= made_s
        if one.left_s > made_s:
            lead_s = max(0.0, one.lead_s + made_s - STEP_S)
            later.append(Stream(lead_s, one.left_s - made_s, one.plays or made_s > 0))
    return later
