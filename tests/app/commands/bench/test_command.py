"""`valle-serve bench`: its table and its JSON, in process and against a server."""

import json
from pathlib import Path

import httpx
import pytest

from app.cli import main


def _measured(tmp_path: Path, *arguments: str) -> dict[str, object]:
    out = tmp_path / "bench.json"
    assert main(["bench", "--at-once", "1,2", "--requests", "1", "-o", str(out), *arguments]) == 0
    figures = json.loads(out.read_text())
    assert isinstance(figures, dict)
    return figures


def _check(figures: dict[str, object], table: str) -> None:
    loads = figures["loads"]
    assert isinstance(loads, list)
    assert [row["load"] for row in loads] == ["1 at once", "2 at once"]
    for row in loads:
        assert row["failed"] == 0
        assert 0 < row["first_p50_ms"] <= row["first_p95_ms"]
        assert 0 < row["rtf_p50"] <= row["rtf_p95"]
        assert row["audio_a_second"] > 0
    assert [line.split()[0] for line in table.splitlines()[-2:]] == ["1", "2"]


@pytest.mark.slow
def test_in_process_it_names_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = _measured(tmp_path)
    assert figures["model"] == "toy"
    assert {"machine", "cpus", "torch", "device", "load"} <= figures.keys()
    _check(figures, capsys.readouterr().out)


@pytest.mark.slow
def test_it_measures_a_running_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], toy_server: httpx.Client
) -> None:
    figures = _measured(tmp_path, "--url", str(toy_server.base_url))
    assert figures["server"] == str(toy_server.base_url)
    _check(figures, capsys.readouterr().out)
