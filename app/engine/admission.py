"""Admission: places that clients share, and how long a speech is.

One rule for every pool: a fifth of its places is reserved for other clients, so that nobody can
exclude them. A client is an owner of keys, or an address where no keys are required.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from app.engine.errors import InvalidRequest
from app.engine.job import SpokenUtterance
from models.text import Utterance

_MOUNT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")

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
        self.limit = limit
        self.taken = 0
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
