"""Whether several listeners can all be served without a gap, and from when on one more can.

The server is taken for a fluid one: it makes ``speed`` seconds of sound a second, and gives them to
whoever runs out of sound first. Such a server meets all deadlines if, up to every time, no more
sound is due than it can have made (Liu and Layland 1973, on earliest deadline first; here for work
that is known at the start).
"""

from collections.abc import Sequence
from dataclasses import dataclass

STEP_S = 0.1  # of the simulation
LONGEST_S = 60.0  # a longer wait is told as this


@dataclass(slots=True)
class Stream:
    """A listener.

    Attributes:
        lead_s: Seconds of sound that are made and not heard.
        left_s: Seconds of sound that are still to be made.
        plays: Whether the listener hears it already; the first sound of others can wait.
    """

    lead_s: float
    left_s: float
    plays: bool = False


def keeps_up(streams: Sequence[Stream], speed: float) -> bool:
    """Return whether nobody has to wait for sound.

    Sound due up to a time t is ``min(left, t - lead)`` of each stream that has used up its lead. As
    a function of t it is steepest before a stream's end, so the ends are all there is to look at.

    Args:
        streams: All of them.
        speed: Seconds of sound made a second.
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
    """Return whether one more stream may begin.

    The only one always may: to wait would not help it.

    Args:
        streams: Those that run.
        newcomer_s: How long it will be.
        speed: Seconds of sound made a second.
        blocking_s: For how long work on one stream may keep the others waiting: whoever hears
            theirs already must have so much before them.
    """
    if not streams:
        return True
    if any(one.plays and one.left_s and one.lead_s < blocking_s for one in streams):
        return False
    return keeps_up([*streams, Stream(0.0, newcomer_s)], speed)


def wait_s(
    streams: Sequence[Stream],
    ahead_s: Sequence[float],
    newcomer_s: float,
    speed: float,
    blocking_s: float = 0.0,
) -> float:
    """Return in how many seconds a stream may begin, those before it first; at most `LONGEST_S`.

    Args:
        streams: Those that run; not changed.
        ahead_s: How long those will be that wait and come first, in their order.
        newcomer_s: How long the stream will be.
        speed: Seconds of sound made a second.
        blocking_s: As `fits` takes it.
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
    """Return the streams that are not made to their end `STEP_S` later."""
    budget_s = speed * STEP_S
    later = []
    for one in sorted(streams, key=lambda stream: stream.lead_s):
        made_s = min(one.left_s, budget_s)
        budget_s -= made_s
        if one.left_s > made_s:
            lead_s = max(0.0, one.lead_s + made_s - STEP_S)
            later.append(Stream(lead_s, one.left_s - made_s, one.plays or made_s > 0))
    return later
