"""The comparison: only pairs count, and the figures are those of a count by hand."""

from pathlib import Path

import pytest

from benchmarks.speech.backtracking import OFF, ON, compare, pairs
from benchmarks.speech.recording import TakeFile, plan
from tests.benchmarks.takes import MODEL, take


def test_a_take_without_its_other_side_is_left_out(tmp_path: Path) -> None:
    file = TakeFile(tmp_path / "takes.jsonl", MODEL)
    for seed, sides in ((0, [OFF, ON]), (1, [OFF]), (2, [ON])):
        for side in sides:
            file.add(take(seed=seed, setting=side.name, knobs=dict(side.knobs)))
    off, on = pairs(plan([OFF, ON], ["One two.", "Three four."], 3), file)
    assert [(one.setting, one.judgement.seed) for one in off] == [("off", 0)]
    assert [(one.setting, one.judgement.seed) for one in on] == [("on", 0)]


def test_shares_and_differences_are_those_of_a_count() -> None:
    texts = [f"Text {number}." for number in range(8)]
    off = [take(text, stuck=number < 4, edits=1) for number, text in enumerate(texts)]
    on = [
        take(text, setting="on", stuck=number < 2, backtracks=("loop",) * (number < 4))
        for number, text in enumerate(texts)
    ]
    data, table = compare(off, on)
    assert data["faulty"] == {"off": 4, "on": 2}
    assert data["figures"]["any of these four"]["off"]["value"] == 0.5
    assert data["on_less_off"]["any of these four"]["value"] == pytest.approx(-0.25)
    assert data["on_less_off"]["WER (tiny.en)"]["value"] == pytest.approx(-0.5)
    assert "Taken back: 4 takes, 4 times ({'loop': 4})." in table
    assert "At least halved: yes." in table
    _, table = compare(
        off[:5], [take(text, stuck=number < 3) for number, text in enumerate(texts[:5])]
    )
    assert "At least halved: no." in table
    _, table = compare(off[4:], on[4:])
    assert "At least halved: there was nothing to halve." in table
