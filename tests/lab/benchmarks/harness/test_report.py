"""What a measurement writes."""

import json
from pathlib import Path

import pytest

from lab.benchmarks.harness.report import Target, conclude


def test_a_gate_that_does_not_hold_is_the_exit_status(capsys: pytest.CaptureFixture[str]):
    rows = [{"what": "x", "figure": 1.5}]
    assert conclude(rows, [Target("x", 1.5, "< 2", True)], None, {}) == 0
    assert conclude(rows, [Target("x", 2.5, "< 2", False)], None, {}) == 1
    printed = capsys.readouterr().out
    assert "| what | figure |\n| --- | --- |\n| x | 1.500 |\n" in printed
    assert "x: 2.500, asked < 2: DOES NOT HOLD" in printed


def test_the_file_is_json_whose_unknown_figures_are_null(tmp_path: Path):
    out = tmp_path / "report.json"
    rows = [{"figure": float("nan")}]
    conclude(rows, [Target("x", float("nan"), "0", False)], out, {"cpus": 2}, {"series": [1.0]})
    report = json.loads(out.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert report["rows"] == [{"figure": None}]
    assert report["targets"][0]["figure"] is None
    assert (report["cpus"], report["series"]) == (2, [1.0])
