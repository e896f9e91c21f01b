"""For how long a quota of processor time stops a process."""

from pathlib import Path

import pytest

from app.engine.admission.cgroups import longest_throttle_s


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def version_1(folder: Path, quota_us: int, *, place: str = "/docker/1") -> Path:
    write(folder / "own", f"7:memory:/x\n2:cpuacct:{place}\n1:cpu:{place}\n0::/\n")
    write(folder / f"groups/cpu{place}/cpu.cfs_quota_us", f"{quota_us}\n")
    write(folder / f"groups/cpu{place}/cpu.cfs_period_us", "100000\n")
    return folder


def version_2(folder: Path, limit: str, *, at: str = "a/b") -> Path:
    write(folder / "own", "0::/a/b\n")
    write(folder / "groups" / at / "cpu.max", f"{limit}\n")
    return folder


def read(folder: Path, cpus: int = 2) -> float:
    return longest_throttle_s(folder / "groups", folder / "own", cpus)


@pytest.mark.parametrize(
    ("quota_us", "expected_s"), [(100_000, 0.05), (50_000, 0.075), (200_000, 0.0), (400_000, 0.0)]
)
def test_it_is_what_is_left_of_a_period_once_all_processors_used_up_the_quota(
    tmp_path: Path, quota_us: int, expected_s: float
) -> None:
    one, two = version_1(tmp_path / "1", quota_us), version_2(tmp_path / "2", f"{quota_us} 100000")
    assert read(one) == read(two) == pytest.approx(expected_s)


def test_quotas_of_the_groups_above_count(tmp_path: Path) -> None:
    folder = version_2(tmp_path, "100000 100000", at="a")
    version_2(folder, "max 100000")
    assert read(folder) == pytest.approx(0.05)


def test_a_container_reads_its_own_group_at_the_mount(tmp_path: Path) -> None:
    assert read(version_2(tmp_path / "2", "50000 100000", at=".")) == pytest.approx(0.075)
    folder = version_1(tmp_path / "1", 50_000, place="/")
    write(folder / "own", "1:cpu:/docker/1\n")
    assert read(folder) == pytest.approx(0.075)


def test_without_a_quota_the_process_is_never_stopped(tmp_path: Path) -> None:
    assert read(version_1(tmp_path / "1", -1)) == 0.0
    assert read(version_2(tmp_path / "2", "max 100000")) == 0.0
    write(tmp_path / "3/own", "5:devices:/\n0::/\n")
    assert read(tmp_path / "3") == 0.0


def test_where_groups_cannot_be_read_none_is_assumed(tmp_path: Path) -> None:
    assert read(tmp_path) == 0.0
    assert read(version_2(tmp_path, "a quota of another kind")) == 0.0


def test_this_machine_can_be_read() -> None:
    assert 0.0 <= longest_throttle_s() < 1.0
