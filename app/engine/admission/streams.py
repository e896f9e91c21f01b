"""Which streams of audio this machine promises to make in time.

The machine is a fluid server, earliest deadline first: it makes ``speed`` seconds of audio a
second, for the stream whose buffer runs out first. It meets all deadlines if, up to every time, no
more audio is due than it can have made (Liu and Layland 1973; here for work that is known at the
start).

Streams are promised it in turn: the first of each client before the second of any, of these those
that are heard, the promised ones before the others, and then the oldest. A stream for which there
is no room then gives way, as speech that is sent whole does: it is made in what time is left, and
played once that will do. So a newcomer takes nothing from a stream that came before, but from those
of a client who has more. Nor does one that becomes its client's first as the one before it ends.

A stream that gives way begins to play once it is far enough ahead beside those that are promised
their audio then. It is promised its own from that moment on: whoever else gives way is so after it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_STEPS = 14  # of a bisection: to a 16,000th


@dataclass(slots=True)
class Stream:
    """The audio of one job."""

    lead_s: float
    left_s: float
    plays: bool = False  # whether its playback has begun; a beginning can be delayed
    next_s: float = 0.0  # seconds in which its next audio comes, if that takes longer than usual
    weight: float = 1.0  # what a second of it costs, over what one usually does
    client: str = ""
    slow: bool = False  # whether it could not keep up if it had the machine to itself
    begun: bool = True  # whether it was promised to be made in time, or some of it is made
    promised: bool = False  # whether it is promised to be made in time now


def keeps_up(streams: Sequence[Stream], speed: float) -> bool:
    """Return whether no stream stalls, at ``speed`` seconds of usual audio made a second.

    The audio due up to a time t is ``min(left, t - lead)`` of each stream that has used up its
    lead. As a function of t it is steepest before the end of a stream, so only ends are checked.
    """
    begins = [(one.lead_s, one.weight, False) for one in streams]
    ends = [(one.lead_s + one.left_s, -one.weight, True) for one in streams]
    due_s = at_s = 0.0
    playing = 0.0  # weights of the streams that have used up their lead and have not ended
    for time_s, change, ending in sorted(begins + ends):
        due_s += playing * (time_s - at_s)
        at_s = time_s
        playing += change
        if ending and due_s > speed * time_s * (1 + 1e-9):
            return False
    return True


def fits(
    streams: Sequence[Stream], newcomer: Stream, speed: float, blocking_s: float = 0.0
) -> bool:
    """Return whether one more stream can begin without a stall of any, or none runs.

    Work on one stream delays the others by at most ``blocking_s``: each that plays must have so
    much audio buffered for each stream that begins, and its ``next_s``.
    """
    if not streams:
        return True
    beginning = 1 + sum(not one.plays for one in streams)
    needed_s = beginning * blocking_s
    if any(one.plays and one.left_s and one.lead_s < needed_s + one.next_s for one in streams):
        return False
    return keeps_up([*streams, newcomer], speed)


def may_begin(
    streams: Sequence[Stream], newcomer: Stream, speed: float, blocking_s: float = 0.0
) -> bool:
    """Return whether a newcomer may begin beside some streams, or waits for one of them to end.

    The first stream of a client never waits: where it would make others stall, it gives way. A
    further one waits until it would not, and for the slow ones of its own client, too.
    """
    if all(one.client != newcomer.client for one in streams):
        return True
    counted = [one for one in streams if not one.slow or one.client == newcomer.client]
    return fits(counted, newcomer, speed, blocking_s)


def promised(streams: Sequence[Stream], speed: float, blocking_s: float = 0.0) -> list[bool]:
    """Return of each of some streams, the oldest first, whether it is made in time."""
    earlier = Counter[str]()
    ranked = list[tuple[int, bool, bool, int]]()
    for place, one in enumerate(streams):
        if not one.slow:
            is_kept = one.plays and one.promised
            ranked.append((earlier[one.client], not is_kept, not one.plays, place))
        earlier[one.client] += 1
    chosen: dict[int, Stream] = {}
    for *_, place in sorted(ranked):
        one = streams[place]
        others = list(chosen.values())
        room = keeps_up([*others, one], speed)
        if room and (one.begun or fits(others, one, speed, blocking_s)):
            chosen[place] = one
    return [place in chosen for place in range(len(streams))]


def least_lead_s(others: Sequence[Stream], one: Stream, speed: float) -> float:
    """Return with how much of its audio the playback of a stream can begin.

    ``one`` has no lead, and all of its audio is left.
    """
    least_s = 0.0
    most_s = one.left_s
    for _ in range(_STEPS):
        lead_s = (least_s + most_s) / 2
        begun = Stream(lead_s, one.left_s - lead_s, weight=one.weight)
        if keeps_up([*others, begun], speed):
            most_s = lead_s
        else:
            least_s = lead_s
    return 0.0 if keeps_up([*others, one], speed) else most_s
