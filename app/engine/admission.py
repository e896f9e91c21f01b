"""Admission: what audio costs this machine, and whether it has room for one more stream.

The machine is a fluid server, earliest deadline first: it makes ``speed`` seconds of audio a
second, for the stream whose buffer runs out first. It meets all deadlines if, up to every time, no
more audio is due than it can have made (Liu and Layland 1973; here for work that is known at the
start).

One rule for every pool: a fifth of its places is reserved for other clients, so that nobody can
exclude them. A client is an owner of keys, or an address where no keys are required.
"""

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.engine.errors import InvalidRequest
from app.engine.job import USUAL_PHONEME_S, SpokenUtterance
from models.text import Utterance

_MOUNT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")

SHARE: Final = 0.8
"""Of the measured speed, what admission counts on: each further stream costs a little more, and
audio comes in chunks."""

SHORT_S, LONG_S = 6.0, 60.0
"""Time constants of the two moving averages of a cost, in seconds of audio. The larger average
counts: a machine that became slower is noticed at once, a faster one only after a while."""

SHORT_STEPS, LONG_STEPS = 100.0, 5000.0
"""The same of the time of a step of level 0, in steps."""

CHUNK_DECAY, JOB_DECAY = 0.98, 0.995
"""What a peak keeps at each further measurement: of work on chunks, and once a job."""
JOB_GROWTH: Final = 3.0
"""At most how many times as high a peak becomes by one job: one may be stopped by a debugger."""
_NEWEST: Final = 0.1  # weight of the newest measurement in averages over jobs

USUAL_S: Final = 5.0
"""Seconds of speech assumed of a job whose text is not known."""

_RESERVED = 5  # one place in so many


def reserved(places: int) -> int:
    """Return how many of some places one client cannot have."""
    return places // _RESERVED


def share(places: int) -> int:
    """Return how many of some places one client may have."""
    return places - reserved(places)


class Places:
    """A pool of places, of which each client has at most its share. One thread only."""

    def __init__(self, limit: int) -> None:
        self.limit, self.taken = limit, 0
        self._of: Counter[str] = Counter()

    def free(self, client: str, places: int = 1) -> bool:
        """Return whether a client can take more places."""
        own = self._of[client] + places
        return self.taken + places <= self.limit and own <= share(self.limit)

    def take(self, client: str, places: int = 1) -> None:
        """Take places until `give_back`; the caller checks `free` before."""
        self.taken += places
        self._of[client] += places

    def give_back(self, client: str, places: int = 1) -> None:
        """Free places that were taken."""
        self.taken -= places
        self._of[client] -= places
        if not self._of[client]:
            del self._of[client]

    @contextmanager
    def held(self, client: str) -> Iterator[None]:
        """Take a place for the duration of a context; the caller checks `free` before."""
        self.take(client)
        try:
            yield
        finally:
            self.give_back(client)


class Cost:
    """Seconds of work a second of audio, or a step: the largest of exponential moving averages.

    Their time constants are in seconds of audio, or in steps.
    """

    def __init__(self, *time_constants: float) -> None:
        self._sums = dict.fromkeys(time_constants, (0.0, 0.0))  # seconds of work, and what it made

    def note(self, work_s: float, made: float = 1.0) -> None:
        """Count seconds of work, and the seconds of audio or the steps made; either may be 0."""
        for constant, (worked_s, all_made) in self._sums.items():
            kept = math.exp(-made / constant)
            self._sums[constant] = kept * worked_s + work_s, kept * all_made + made

    @property
    def each(self) -> float:
        """Seconds of work a second of audio, or a step; 0 before the first measurement."""
        return max(work_s / made if made else 0.0 for work_s, made in self._sums.values())


class Peak:
    """The maximum of some durations, which decays with each further one."""

    def __init__(self, decay: float, growth: float = math.inf) -> None:
        self._decay, self._growth = decay, growth
        self.seconds = 0.0

    def note(self, seconds: float) -> None:
        """Count a duration."""
        if self.seconds:
            seconds = min(seconds, self._growth * self.seconds)
        self.seconds = max(seconds, self._decay * self.seconds)


class Capacity:
    """What a second of audio costs each worker; each worker notes its own costs.

    Costs are wall time, so they are higher where the workers share a processor. They are added, as
    if the workers took turns: in parallel they are faster where each has a processor to itself, but
    not where a quota or other programs leave them one between them.
    """

    def __init__(self, throttle_s: float = 0.0) -> None:
        self._throttle_s = throttle_s
        self._level_0, self._sound = Cost(SHORT_S, LONG_S), Cost(SHORT_S, LONG_S)
        self._chunk, self._admission = Peak(CHUNK_DECAY), Peak(CHUNK_DECAY)
        self._step = Cost(SHORT_STEPS, LONG_STEPS)
        self._alone = Peak(JOB_DECAY, JOB_GROWTH)
        self._phoneme_s = USUAL_PHONEME_S

    def note_level_0(self, work_s: float, sound_s: float) -> None:
        """Count a step of level 0 that drew ``sound_s`` seconds of speech, over all its rows."""
        self._level_0.note(work_s, sound_s)
        self._step.note(work_s)

    def note_blocking(self, work_s: float) -> None:
        """Count work on several chunks at once, which cannot be interrupted."""
        self._chunk.note(work_s)

    def note_sound(self, work_s: float, sound_s: float) -> None:
        """Count the finer levels and the codec of one chunk."""
        self._chunk.note(work_s)
        self._sound.note(work_s, sound_s)

    def note_admission(self, work_s: float) -> None:
        """Count the prefill of a job, during which no step is made for the others."""
        self._admission.note(work_s)

    def note_start(self, start_s: float) -> None:
        """Count the seconds from a job's admission to its first audio, while no other ran."""
        self._alone.note(start_s)

    def note_spoken(self, phonemes: float, speech_s: float) -> None:
        """Count a job of so many phoneme symbols and seconds of audio, for `speech_s`."""
        if phonemes:
            self._phoneme_s += _NEWEST * (speech_s / phonemes - self._phoneme_s)

    @property
    def speed(self) -> float:
        """Seconds of audio a second that admission counts on; infinite before any measurement."""
        together = self._level_0.each + self._sound.each
        return SHARE / together if together else math.inf

    def delay_s(self, others: int, at_once: int = 1) -> float:
        """Return the longest time for which a stream that plays waits because others begin.

        A chunk or a prefill that has begun comes first; under a quota all of the others' first
        audio, as all workers share the processor time.
        """
        shared_s = self._alone.seconds if self._throttle_s else 0.0
        chunks_s = math.ceil(others / at_once) * self._chunk.seconds
        return chunks_s + others * (self._admission.seconds + shared_s)

    @property
    def streams(self) -> int | None:
        """How many streams can be made in real time at once; None before any measurement."""
        return None if math.isinf(self.speed) else math.floor(self.speed)

    def chunk_s(self, frames: int) -> float:
        """Return the time in which frames of level 0 are drawn and the chunk that they end is made.

        No other is made meanwhile. A quota may stop the steps once more than measured.
        """
        step_s = self._step.each / SHARE
        return frames * step_s + self._chunk.seconds + self._throttle_s

    def first_audio_s(self, jobs: int) -> float:
        """Return about how many seconds the first audio of the last of so many jobs takes.

        Of those before it, as many must end as there are more than `streams`.
        """
        ends_s = 0.0
        if self.streams is not None:
            ends_s = USUAL_S * max(0, jobs - self.streams) / max(1, self.streams)
        return ends_s + self._alone.seconds

    def speech_s(self, phonemes: float) -> float:
        """Return the expected seconds of audio of so many phoneme symbols."""
        return self._phoneme_s * phonemes


@dataclass(slots=True)
class Stream:
    """The audio of one job."""

    lead_s: float
    left_s: float
    plays: bool = False  # whether its playback has begun; a beginning can be delayed
    next_s: float = 0.0  # seconds in which its next audio comes, if that takes longer than usual


def keeps_up(streams: Sequence[Stream], speed: float) -> bool:
    """Return whether no stream stalls, at ``speed`` seconds of audio made a second.

    The audio due up to a time t is ``min(left, t - lead)`` of each stream that has used up its
    lead. As a function of t it is steepest before the end of a stream, so only ends are checked.
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
    return keeps_up([*streams, Stream(0.0, newcomer_s)], speed)


def spoken_symbols(utterances: Sequence[Utterance] | Sequence[SpokenUtterance]) -> float:
    """Return how many phoneme symbols some utterances are as long as, at their rates."""
    return sum(len(one.phonemes) / one.rate for one in utterances)


def pauses_s(
    utterances: Sequence[Utterance] | Sequence[SpokenUtterance], pause_s: float, *, more: bool
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


def longest_throttle_s(mount: Path = _MOUNT, own: Path = _OWN, cpus: int | None = None) -> float:
    """Return the seconds for which a CPU quota stops every thread of this process at most.

    Linux stops a group that has used ``quota`` seconds of processor time in a ``period`` until the
    period ends (Documentation/scheduler/sched-bwc.rst). On ``cpus`` busy processors that is after
    ``quota / cpus``, so it stands still for ``period - quota / cpus``. Quotas of the groups above
    count too. 0 without a quota or control groups, or where they cannot be read.
    """
    quotas = _quotas(mount, own)
    if not quotas:
        return 0.0
    used = len(os.sched_getaffinity(0)) if cpus is None else cpus
    return max(0.0, *(period - quota / used for quota, period in quotas))


def _quotas(mount: Path, own: Path) -> list[tuple[float, float]]:
    """Return quota and period in seconds of each group of this process that has a quota."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if not controllers:
            root = mount
        elif "cpu" in controllers.split(","):
            root = mount / controllers
        else:
            continue
        group = root / place.lstrip("/")
        # Within a container the path may be that of the host: its own group is then the mount.
        while group != root.parent:
            found.append(_quota_v2(group) if root == mount else _quota_v1(group))
            group = group.parent
    return [one for one in found if one is not None]


def _quota_v1(group: Path) -> tuple[float, float] | None:
    try:
        quota = int((group / "cpu.cfs_quota_us").read_text())
        period = int((group / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return (quota / 1e6, period / 1e6) if quota > 0 else None


def _quota_v2(group: Path) -> tuple[float, float] | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return None if quota == "max" else (int(quota) / 1e6, int(period) / 1e6)
    except (OSError, ValueError):
        return None
