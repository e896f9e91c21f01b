"""The charts: every point is a legal request, its figure that of a count, and the page holds it."""

from pathlib import Path

import pytest

from benchmarks.harness.curves import draw
from benchmarks.speech import effects
from benchmarks.speech.effects import (
    BEGIN,
    CER,
    CHARTS,
    END,
    LOOPS,
    PACE,
    WER,
    Chart,
    points,
    table,
    tasks,
)
from benchmarks.speech.recording import TakeFile
from samplers.knobs.params import SamplingParams
from samplers.knobs.resolve import resolve
from tests.benchmarks.takes import MODEL, take
from training.judging.bootstrap import Estimate

CHART = Chart("top_k", (1, 2), (PACE, LOOPS), {"cold": {"temperature": 0.2}, "warm": {}})


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.knob)
def test_every_point_of_every_chart_resolves_and_they_differ(chart: Chart) -> None:
    resolved = [
        resolve(SamplingParams(seed=0, **setting.knobs), "builtin")
        for *_, setting in chart.settings()
    ]
    assert len(set(map(repr, resolved))) == len(resolved) > 3
    names = [setting.name for *_, setting in chart.settings()]
    assert len(set(names)) == len(names)


def test_a_figure_is_the_ratio_of_sums_over_its_takes() -> None:
    takes = [take("A b.", spoken_s=2.0, edits=1), take("C d.", spoken_s=1.0, stuck=True)]
    assert PACE.of(takes).value == pytest.approx(3.0 / 20)
    assert WER.of(takes).value == pytest.approx(25.0)
    assert CER.of(takes).value == 0.0
    assert LOOPS.of(takes).value == 0.5
    assert LOOPS.of(takes[:1]).high > 0.9  # once without a loop says little


def test_points_are_of_the_takes_there_are_and_say_how_many(tmp_path: Path) -> None:
    file = TakeFile(tmp_path / "takes.jsonl", MODEL)
    wanted = tasks([CHART], ["A b.", "C d."], 1)
    assert len(wanted) == 8
    for _, value, setting in CHART.settings():
        if value == 1:
            file.add(take("A b.", setting=setting.name, knobs=dict(setting.knobs), spoken_s=3.0))
    panel = points(CHART, PACE, wanted, file)
    assert panel == {line: [(1, Estimate(0.3, 0.3, 0.3), 1)] for line in ("cold", "warm")}
    text = table(CHART, {"seconds a phoneme": panel})
    assert "| 1 | cold | 1 | 0.3 [0.3, 0.3] |" in text


def test_a_curve_is_a_small_picture(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    entries = [(float(at), Estimate(at, at - 0.1, at + 0.1), 9) for at in range(5)]
    draw("top_k", {"one": {"a": entries, "b": entries}, "two": {"a": entries}}, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size < 60_000


def test_the_page_gets_the_figures_between_its_marks_and_only_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{BEGIN}\nold\n{END}\n\nThe end.\n")
    monkeypatch.setattr(effects, "PAGE", page)
    effects.write_page(["one", "two"], "run --docs")
    effects.write_page(["three"], "run --docs")
    text = page.read_text()
    assert text.startswith(f"# Page\n\n{BEGIN}\n\n`run --docs`")
    assert text.endswith(f"three\n\n{END}\n\nThe end.\n")
    assert "old" not in text
    assert "one" not in text
