"""`valle-serve study`: its table, its curves, and that it goes on where it was interrupted."""

import csv
import json
import shlex
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.cli import main
from app.commands.study.grid import read_varied, settings_of
from app.commands.study.page import Heading, as_page, as_svg, curves
from app.commands.study.race import Goal
from app.storage.preset_files import read_presets

pytestmark = pytest.mark.slow
SHORT = ("--fixed", "nar_levels=0", "--count", "2", "--at-once", "2")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, toy: Path) -> None:
    monkeypatch.setenv("TTS_MODEL", str(toy))
    monkeypatch.setenv("TTS_DEVICE", "cpu")


def study(folder: Path, *arguments: str) -> list[dict[str, str]]:
    sentences = folder.parent / "sentences.txt"
    sentences.write_text("Hello.\nIt is.\n", "utf-8")
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
    assert page.count("<svg") == 2 * 7
    assert "<td>0.5</td>" in page


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


def test_a_study_does_not_resume_from_takes_of_other_weights_under_the_same_name(
    tmp_path: Path, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study(tmp_path / "out", "top_k=4")
    other = tmp_path / "toy"
    shutil.copytree(toy, other)
    config = json.loads((other / "lm.json").read_text("utf-8"))
    (other / "lm.json").write_text(json.dumps(config | {"preset": "greedy"}), "utf-8")
    monkeypatch.setenv("TTS_MODEL", str(other))
    fresh = study(tmp_path / "fresh", "top_k=4")
    assert study(tmp_path / "out", "top_k=4") == fresh
    assert len((tmp_path / "out" / "takes.jsonl").read_text("utf-8").splitlines()) == 4


def test_a_race_writes_a_preset_that_the_service_loads(tmp_path: Path) -> None:
    rows = study(
        tmp_path / "out", "temperature=0,2", "top_k=1,0", "--find", "nats", "--limit",
        "silence=1", "--fixed", "preset=greedy", "--unseen", str(unseen(tmp_path)),
    )  # fmt: skip
    presets = read_presets(tmp_path / "out" / "preset.json")
    assert set(presets["found"]) == {"temperature", "top_k", "nar_levels"}
    assert presets["found"]["temperature"] == 2
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert "beats what there is" in page
    assert page.count("<audio") == 5 + 2  # of the race, and of the comparison at its end
    assert study(
        tmp_path / "out", "temperature=0,2", "top_k=1,0", "--find", "nats", "--limit",
        "silence=1", "--fixed", "preset=greedy", "--unseen", str(unseen(tmp_path)),
    ) == rows  # fmt: skip


def test_a_race_says_when_nothing_beats_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "preset.json").write_text("of an earlier race")
    study(
        tmp_path / "out", "temperature=0,0.01", "--find", "nats", "--limit", "silence=1",
        "--fixed", "temperature=2", "--unseen", str(unseen(tmp_path)),
    )  # fmt: skip
    assert "nothing beats what there is" in capsys.readouterr().out
    assert not (tmp_path / "out" / "preset.json").exists()


def test_who_misses_a_limit_is_worse_than_who_does_not() -> None:
    rows = [_row(0, seconds, "a") | {"faults": faults} for seconds, faults in ((1.0, 1), (9.0, 0))]
    goal = Goal.read("seconds", ["faults=0"])
    assert goal.rank(rows[1:]) < goal.rank(rows[:1])


def unseen(folder: Path) -> Path:
    path = folder / "unseen.txt"
    path.write_text("Other.\nNo more.\nAll of it.\n", "utf-8")
    return path


def test_a_server_that_goes_away_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/ready":
            return httpx2.Response(200, json={"model_sha256": "0", "word_times": False})
        if request.url.path == "/v1/presets":
            return httpx2.Response(200, json={"presets": []})
        raise httpx2.ReadError("the line went dead")

    made = partial(httpx2.AsyncClient, transport=httpx2.MockTransport(answer))
    monkeypatch.setattr(httpx2, "AsyncClient", made)
    words = ["study", "top_k=2,4", "--out", str(tmp_path), "--url", "http://nowhere"]
    assert main(words) == 1
    assert "url: the line went dead" in capsys.readouterr().err


def test_a_server_at_a_url_gives_the_table_of_a_model_here(tmp_path: Path, toy_server: Any) -> None:
    here = study(tmp_path / "here", "temperature=0.5,1.5")
    there = study(tmp_path / "there", "temperature=0.5,1.5", "--url", str(toy_server.base_url))
    assert here == there


def test_the_numbers_of_judges_are_columns_and_their_commands_may_have_commas(
    tmp_path: Path,
) -> None:
    judge = tmp_path / "judge.py"
    judge.write_text(
        "import json, sys, wave\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    frames = wave.open(asked['sound']).getnframes()\n"
        "    told = {'letters': len(asked['text']), 'frames': frames}\n"
        "    names = sys.argv[1].split(', ')\n"
        "    print(json.dumps({name: told[name] for name in names}), flush=True)\n"
    )
    commands = [
        shlex.join([sys.executable, str(judge), names]) for names in ("letters, frames", "letters")
    ]
    for row in study(tmp_path / "out", "top_k=2,4", "--judge", "\n".join(commands)):
        assert float(row["letters"]) == len(row["text"])
        assert float(row["frames"]) == pytest.approx(24_000 * float(row["seconds"]))
    assert not list((tmp_path / "out").glob("*.wav"))


def test_a_comma_inside_of_brackets_belongs_to_the_value(tmp_path: Path) -> None:
    study(
        tmp_path, "logit_bias={},{\"1\":-2,\"3\":4}",
        "--fixed", "ban_tokens=[1,2]", "--fixed", 'sampler_order=["top_k","temperature","top_p"]',
    )  # fmt: skip
    takes = [json.loads(line) for line in (tmp_path / "takes.jsonl").read_text().splitlines()]
    bodies = [json.loads(take["key"]) for take in takes]
    assert all(body["ban_tokens"] == [1, 2] for body in bodies)
    assert all(body["sampler_order"] == ["top_k", "temperature", "top_p"] for body in bodies)
    biases = [body["logit_bias"] for body in bodies]  # in the order in which takes end
    assert sorted(biases, key=str) == 2 * [{"1": -2, "3": 4}] + 2 * [{}]


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
        (["top_p=0.5", "--find", "wer", "--count", "40"], "unseen"),
        (["top_p=0.5", "--find", "wer", "--limit", "faults"], "limit"),
        (["top_p=0.5", "--find", "wer", *SHORT], "no take has a measure 'wer'"),
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
    assert "dead from 0 to 2" in as_page([curve], Heading("valle-serve study", 5))


def test_an_interval_is_over_sentences() -> None:
    alike = [_row(0, 1.0, "a", text) for text in ("One.", "Two.")]
    apart = [_row(1, seconds, "b", text) for seconds, text in ((1.0, "One."), (3.0, "Two."))]
    (curve,) = curves(alike + apart, ["length_penalty"])
    narrow, wide = curve.points["seconds"]
    assert (narrow.low, narrow.value, narrow.high) == (1.0, 1.0, 1.0)
    assert (wide.low, wide.value, wide.high) == (1.0, 2.0, 3.0)
    assert "<td>2 [1, 3]</td>" in as_page([curve], Heading("valle-serve study", 4))
    assert as_svg(curve, "seconds").count("<path") == 2


def test_a_judge_is_tried_before_the_first_take(tmp_path: Path) -> None:
    words = ["study", "--out", str(tmp_path / "out"), *SHORT, "top_k=4", "--judge"]
    assert main([*words, "exit 3 # lab.training.judging.hear"]) != 0
    assert not (tmp_path / "out" / "takes.jsonl").exists()


def test_a_knob_that_needs_another_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study(tmp_path, "dry_base=1.5,2")
    assert "dry_base: does nothing without dry_multiplier" in capsys.readouterr().out
