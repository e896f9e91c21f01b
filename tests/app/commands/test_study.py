"""`valle-serve study`: its table, its curves, and that it goes on where it was interrupted."""

import csv
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.commands.studies.grid import read_varied, settings_of
from app.commands.studies.page import as_markdown, as_page, as_svg, curves

SHORT = ("--fixed", "nar_levels=0", "--count", "2", "--at-once", "2")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, toy: Path) -> None:
    monkeypatch.setenv("TTS_MODEL", str(toy))
    monkeypatch.setenv("TTS_DEVICE", "cpu")


def study(folder: Path, *arguments: str) -> list[dict[str, str]]:
    sentences = folder.parent / "sentences.txt"
    sentences.write_text("Hello.\nIt is.\nNot this.\n", "utf-8")
    words = ["study", "--out", str(folder), "--sentences", str(sentences), *SHORT, *arguments]
    assert main(words) == 0
    with (folder / "takes.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_study_has_a_row_for_each_take_with_its_measures(tmp_path: Path) -> None:
    rows = study(tmp_path, "temperature=0.5,1.5", "top_k=4", "--seeds", "2")
    assert [(row["temperature"], row["top_k"]) for row in rows[:3]] == [
        ("0.5", ""), ("1.5", ""), ("", "4"),
    ]  # fmt: skip
    assert len(rows) == 3 * 2 * 2
    assert {row["seed"] for row in rows} == {"0", "1"}
    for row in rows:
        assert len(row["codes_sha256"]) == 64
        assert float(row["seconds"]) > 0
        assert float(row["entropy"]) > 0
    page = (tmp_path / "index.html").read_text("utf-8")
    assert page.count("<svg") == (tmp_path / "curves.md").read_text("utf-8").count("seconds") * 7
    assert "| 0.5 |" in (tmp_path / "curves.md").read_text("utf-8")


def test_an_interrupted_study_that_is_resumed_gives_the_same_table(tmp_path: Path) -> None:
    varied = ("temperature=0.5:1.5:3",)
    study(tmp_path / "whole", *varied)
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    (tmp_path / "broken" / "takes.csv").unlink()
    takes = tmp_path / "broken" / "takes.jsonl"
    lines = takes.read_text("utf-8").splitlines(keepends=True)
    takes.write_text("".join(lines[3:5]) + lines[0][:40], "utf-8")  # ended while it wrote
    study(tmp_path / "broken", *varied)
    tables = [(tmp_path / one / "takes.csv").read_bytes() for one in ("whole", "broken")]
    assert tables[0] == tables[1]
    assert len(takes.read_text("utf-8").splitlines()) == len(lines)


def test_a_server_at_a_url_gives_the_table_of_a_model_here(tmp_path: Path, toy_server: Any) -> None:
    here = study(tmp_path / "here", "temperature=0.5,1.5")
    there = study(tmp_path / "there", "temperature=0.5,1.5", "--url", str(toy_server.base_url))
    assert here == there


def test_the_numbers_of_a_judge_are_columns(tmp_path: Path) -> None:
    judge = tmp_path / "judge.py"
    judge.write_text(
        "import json, sys, wave\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    frames = wave.open(asked['sound']).getnframes()\n"
        "    print(json.dumps({'letters': len(asked['text']), 'frames': frames}), flush=True)\n"
    )
    command = shlex.join([sys.executable, str(judge)])
    for row in study(tmp_path / "out", "top_k=2,4", "--judge", command):
        assert float(row["letters"]) == len(row["text"])
        assert float(row["frames"]) == pytest.approx(24_000 * float(row["seconds"]))
    assert not list((tmp_path / "out").glob("*.wav"))


def test_a_knob_that_lacks_another_is_named_in_its_row(tmp_path: Path) -> None:
    rows = study(tmp_path, "mirostat_tau=1,2")
    assert {row["ignored"] for row in rows} == {"mirostat_tau"}
    assert "dead from 1 to 2" in (tmp_path / "index.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["top_p=2"], "top_p"),
        (["topp=0.5"], "topp"),
        (["0.5"], "vary"),
        (["top_p=0.5", "--fixed", "preset"], "fixed"),
        (["top_p=0.5", "--sentences", "/no/such/file"], "sentences"),
    ],
)
def test_what_is_no_study_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert main(["study", "--out", str(tmp_path), *arguments]) == 2
    assert told in capsys.readouterr().err


def test_values_are_ranges_lists_and_words() -> None:
    assert read_varied(["length_penalty=-2:2:5", "top_k=10:30:3", "dynatemp_mode=sigmoid"]) == {
        "length_penalty": [-2, -1, 0, 1, 2],
        "top_k": [10, 20, 30],
        "dynatemp_mode": ["sigmoid"],
    }
    assert read_varied(["top_p=0.8", "0.9", "min_p=0.1"]) == {"top_p": [0.8, 0.9], "min_p": [0.1]}


def test_crossed_knobs_are_every_combination() -> None:
    varied: dict[str, list[float]] = {"top_p": [0.8, 0.9], "top_k": [10, 20]}
    assert len(settings_of(varied, crossed=True)) == 4
    assert settings_of(varied, crossed=False)[0] == {"top_p": 0.8}


def _row(value: float, seconds: float, codes: str, text: str = "Hello.") -> dict[str, Any]:
    row = {"length_penalty": value, "text": text, "voice": None, "seed": 0, "codes_sha256": codes}
    return row | {"finish": "stop", "ignored": "", "seconds": seconds, "faults": 0.0}


def test_a_cliff_and_a_dead_half_are_told() -> None:
    table = [_row(-2, 1.0, "a"), _row(-1, 1.2, "b"), _row(0, 1.6, "c"), _row(1, 1.6, "c"),
             _row(2, 1.6, "c")]  # fmt: skip
    (curve,) = curves(table, ["length_penalty"])
    assert list(curve.faults) == ["cliff from -1 to 0: 1.20 s, 1.60 s", "dead from 0 to 2"]
    assert "dead from 0 to 2" in as_page([curve], "valle-serve study", 5)


def test_an_interval_is_over_sentences() -> None:
    alike = [_row(0, 1.0, "a", text) for text in ("One.", "Two.")]
    apart = [_row(1, seconds, "b", text) for seconds, text in ((1.0, "One."), (3.0, "Two."))]
    (curve,) = curves(alike + apart, ["length_penalty"])
    narrow, wide = curve.points["seconds"]
    assert (narrow.low, narrow.mean, narrow.high) == (1.0, 1.0, 1.0)
    assert (wide.low, wide.mean, wide.high) == (1.0, 2.0, 3.0)
    assert "| 1 | 2 [1, 3] |" in as_markdown(curve)
    assert as_svg(curve, "seconds").count("<path") == 2
