"""Takes on disk: a run that was stopped goes on, and never with takes of something else."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.speech.recording import Setting, TakeFile, TakeTask, plan
from tests.benchmarks.takes import MODEL, take

COLD = Setting("cold", {"temperature": 0.2, "ban_tokens": [1, 2]})


def test_what_was_written_is_found_again_and_equal(tmp_path: Path) -> None:
    path = tmp_path / "takes.jsonl"
    made = take("One two.", 3, knobs=dict(COLD.knobs), backtracks=("loop", "silence"))
    file = TakeFile(path, MODEL)
    file.add(made)
    task = TakeTask(COLD, "One two.", 3)
    assert file.find(task) == made
    assert TakeFile(path, MODEL).find(task) == made


@pytest.mark.parametrize(
    "task",
    [
        TakeTask(COLD, "One two.", 4),
        TakeTask(COLD, "Two one.", 3),
        TakeTask(replace(COLD, knobs={"temperature": 0.3}), "One two.", 3),
    ],
)
def test_another_seed_sentence_or_knob_is_another_take(tmp_path: Path, task: TakeTask) -> None:
    file = TakeFile(tmp_path / "takes.jsonl", MODEL)
    file.add(take("One two.", 3, knobs=dict(COLD.knobs)))
    assert file.find(task) is None


def test_takes_of_another_model_are_kept_and_not_used(tmp_path: Path) -> None:
    path = tmp_path / "takes.jsonl"
    TakeFile(path, MODEL).add(take(knobs={}))
    task = TakeTask(Setting("off", {}), "One two.", 0)
    other = TakeFile(path, "1" * 64)
    assert other.find(task) is None
    other.add(take(knobs={}, model="1" * 64))
    assert TakeFile(path, MODEL).find(task) is not None
    assert TakeFile(path, "1" * 64).find(task) is not None


def test_a_line_cut_off_in_mid_writing_is_dropped_and_a_broken_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "takes.jsonl"
    file = TakeFile(path, MODEL)
    file.add(take(seed=0))
    file.add(take(seed=1))
    whole = path.read_text()
    path.write_text(whole[:-10])
    again = TakeFile(path, MODEL)
    again.add(take(seed=2))
    seeds = [
        seed for seed in range(3) if again.find(TakeTask(Setting("off", {}), "One two.", seed))
    ]
    assert seeds == [0, 2]
    assert len(path.read_text().splitlines()) == 2
    path.write_text("{}\n" + whole)
    with pytest.raises(ValueError, match="validation error"):
        TakeFile(path, MODEL)


def test_whatever_is_made_when_time_is_up_is_balanced() -> None:
    settings = [Setting("a", {}), Setting("b", {"top_k": 1})]
    tasks = plan(settings, ["One.", "Two.", "Three."], seeds=2)
    assert len(tasks) == len({(task.setting.name, task.text, task.seed) for task in tasks}) == 12
    for made in range(1, len(tasks)):
        counts = Counter(task.setting.name for task in tasks[:made])
        assert counts["a"] - counts["b"] in {0, 1}
