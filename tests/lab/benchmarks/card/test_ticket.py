"""The ticket goes on whatever a part does; every part runs on a CPU with a small model."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from lab.benchmarks.card import service, ticket
from lab.benchmarks.card.ticket import PARTS, TicketPart, main, measure, run, work_through
from lab.benchmarks.harness.report import TableRow, Target
from lab.benchmarks.harness.served import served
from tests.conftest import ROOT

MINUTE_S = 60.0


def part(code: str, *, limit_s: float = MINUTE_S, needs: Sequence[str] = ()) -> TicketPart:
    return TicketPart("one", needs, limit_s, command=("-c", code))


@pytest.mark.slow
def test_a_part_that_hangs_is_stopped_and_what_it_said_is_kept() -> None:
    code = "import time; print('begun', flush=True); time.sleep(600)"

    found = run(part(code, limit_s=2.0), "cpu", tiny=True, left_s=MINUTE_S)

    assert (found["status"], found["output"]) == ("timed out", "begun")


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["time.sleep(600)", "pass"], ids=["stopped", "ended"])
def test_a_part_leaves_no_process(ending: str, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    code = (
        "import pathlib, subprocess, sys, time\n"
        "server = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(told)!r}).write_text(str(server.pid)); {ending}"
    )
    run(part(code, limit_s=2.0), "cpu", tiny=True, left_s=MINUTE_S)
    status = Path(f"/proc/{told.read_text()}/status")
    assert not status.exists() or "zombie" in status.read_text()


@pytest.mark.parametrize(
    ("needs", "left_s", "why"),
    [(("no_such_package",), MINUTE_S, "no_such_package"), ((), 1.0, "no time")],
)
def test_a_part_that_cannot_run_is_skipped_by_name(
    needs: Sequence[str], left_s: float, why: str
) -> None:
    found = run(part("raise SystemExit(1)", needs=needs), "cpu", tiny=True, left_s=left_s)

    assert found["status"] == "skipped"
    assert why in found["output"]


def test_the_parts_after_one_that_broke_are_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [
        part("raise SystemExit(3)"),
        TicketPart("two", (), MINUTE_S, command=("-c", "print('done')")),
    ]
    monkeypatch.setattr(ticket, "PARTS", parts)
    monkeypatch.setattr(ticket, "WHEELS", tmp_path / "none")

    report = work_through("cpu", tiny=True, minutes=2.0)

    assert [found["status"] for found in report["parts"].values()] == ["failed", "ok"]
    assert "## two: ok" in capsys.readouterr().out


def test_what_a_part_measured_comes_back_from_its_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def measured(*_: object, tiny: bool) -> tuple[list[TableRow], list[Target]]:
        return [{"tiny": tiny}], [Target("figure", 1.0, ">= 2", holds=False)]

    monkeypatch.setattr(ticket, "measure", measured)
    out = tmp_path / "part.json"

    assert main(["--device", "cpu", "--tiny", "--only", "exact", "--out", str(out)]) == 0
    found = json.loads(out.read_text("utf-8"))
    assert found["rows"] == [{"tiny": True}]
    assert found["targets"][0]["holds"] is False


def test_the_files_that_parts_run_are_there() -> None:
    named = [word for one in PARTS for word in one.command if word.endswith(".py")]
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The server of all parts that ask one, which takes seconds to start."""
    with served(device="cpu", max_queue=512, slots=20) as url:
        yield url


OWN = {one.function: one.name for one in reversed(PARTS) if one.function}
"""A part of each function: the races of kernels, say, are the same under another program."""


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("name", sorted(OWN.values()))
def test_every_part_runs_on_a_cpu(name: str, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "served", lambda **_: nullcontext(server))
    rows, targets = measure(name, "cpu", tiny=True)

    assert rows
    assert len({tuple(row) for row in rows}) == 1  # one table
    assert all(target.what for target in targets)


@pytest.mark.slow
def test_only_the_module_of_a_part_is_imported() -> None:
    """A bare machine lacks packages of other parts, which must not cost it this one."""
    code = (
        "import sys; sys.modules['pydantic'] = None\n"
        "from lab.benchmarks.card.ticket import measure\n"
        "assert measure('environment', 'cpu', tiny=True)[0]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
