"""Control groups of Linux: for how long a quota of processor time stops this process."""

import os
from pathlib import Path
from typing import Final

_MOUNT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")


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
