"""The script that writes the curves of studies into the docs."""

import csv
from pathlib import Path

import pytest

from scripts import gen_curves

MEASURES = {"seconds": 1.0, "faults": 0.0, "repeats": 0.2, "entropy": 1.4, "missing": ""}


def test_a_knob_has_a_row_of_its_values_and_a_row_of_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, plots = tmp_path / "page.md", tmp_path / "plots.svg"
    page.write_text("before\n<!-- curves -->old<!-- /curves -->\nafter\n")
    monkeypatch.setattr(gen_curves, "_PAGE", page)
    monkeypatch.setattr(gen_curves, "_PLOTS", plots)
    rows = [
        {"top_k": value, "text": text, "voice": "", "seed": 0, "codes_sha256": f"{value}",
         "finish": "stop", "ignored": "", **MEASURES, "seconds": seconds}
        for value, seconds in ((1, 2.0), (9, 2.5)) for text in ("One.", "Two.")
    ]  # fmt: skip
    with (tmp_path / "takes.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    gen_curves.main([str(tmp_path)])
    before, *_, row, _, _, after = page.read_text().splitlines()
    assert (before, after) == ("before", "after")
    assert row == "| `top_k` | 2 | 1 9 | 2 2.5 | 0.2 0.2 | 1.4 1.4 |  | 0 0 | 25% | 2 |"
    assert plots.read_text().count("<svg") == 4  # the sheet and three measures that are there
