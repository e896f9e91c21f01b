"""The script that writes the curves of studies into the docs."""

import csv
from pathlib import Path

import pytest

from scripts import gen_curves

MEASURES = {"seconds": 1.0, "faults": 0.0, "repeats": 0.2, "entropy": 1.4, "missing": ""}


def test_a_knob_has_a_row_of_its_values_and_a_row_of_plots_and_others_keep_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, plots = tmp_path / "page.md", tmp_path / "plots.svg"
    page.write_text("before\n<!-- curves -->old<!-- /curves -->\nafter\n")
    monkeypatch.setattr(gen_curves, "_PAGE", page)
    monkeypatch.setattr(gen_curves, "_PLOTS", plots)
    for knob in ("min_p", "top_k"):
        rows = [
            {knob: value, "text": text, "voice": "", "seed": 0, "codes_sha256": f"{value}",
             "finish": "stop", "ignored": "", **MEASURES, "seconds": seconds}
            for value, seconds in ((0, 2.0), (1, 2.5)) for text in ("One.", "Two.")
        ]  # fmt: skip
        (tmp_path / knob).mkdir()
        with (tmp_path / knob / "takes.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, [*rows[0]])
            writer.writeheader()
            writer.writerows(rows)
    heard = tmp_path / "top_k" / "heard" / "heard.csv"
    heard.parent.mkdir()
    heard.write_text("""setting,words,edits\n"{""top_k"": 0}",4,0\n"{""top_k"": 1}",4,2""")
    for knob in ("min_p", "top_k"):
        gen_curves.main([str(tmp_path / knob)])
    before, *_, first, second, _, _, after = page.read_text().splitlines()
    assert (before, after) == ("before", "after")
    figures = "2 | 0 1 | 2 2.5 | 0.2 0.2 | 1.4 1.4 |  | 0 0 |"
    assert first == f"| `top_k` | {figures} 0 50 | 25% | 2 |"
    assert second == f"| `min_p` | {figures}  | 25% | 2 |"
    assert plots.read_text().count("<svg") == 7  # the sheet and three measures that are there
