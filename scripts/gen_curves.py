"""Write the curves of studies into docs/results/curves.md, their plots into docs/plots/curves.svg.

    python -m scripts.gen_curves /tmp/studies/rp /tmp/studies/temperature

Each folder is what `valle-serve study --out` wrote; of a knob in several the last is taken.
Knobs of no folder keep what was written of them before. Words that Whisper hears wrongly are of the
folder's `heard/heard.csv`, if there is one: `lab.training.judging.hear --joined`.
"""

import csv
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from app.commands.study.grid import read_value
from app.commands.study.page import Curve, StudyTable, as_svg, curves
from samplers.knobs.params import SamplingParams

_PAGE, _PLOTS = Path("docs/results/curves.md"), Path("docs/plots/curves.svg")
_MEASURES = ("seconds", "repeats", "entropy", "missing")
_WORDS = "wrong words, %"
_NUMBERS = frozenset({*_MEASURES, "faults", "silence", "nats", "changed", "hurry", "wer", "cer"})
_ROW_HEIGHT, _COLUMN_WIDTH = 124, 236
_ROW_OF_PLOTS = re.compile(r'^<g id="(\w+)" transform="[^"]*">(.*)</g>$', re.M)


@dataclass(frozen=True)
class _Measured:
    """A curve, its takes a value, of how many of them each step changed the codes, wrong words."""

    curve: Curve
    takes: int
    changed: Sequence[int]
    wrong: Sequence[float]  # shares of the words, as Whisper hears them; none: not heard


def main(folders: Sequence[str]) -> None:
    """Read the studies, and write table and plots."""
    by_knob = {one.curve.knob: one for folder in folders for one in _read(Path(folder))}
    head = (
        "knob",
        "takes a value",
        "values",
        *_MEASURES,
        "faults",
        _WORDS,
        "largest step",
        "codes changed",
    )
    text = _PAGE.read_text("utf-8")
    before, *told, after = re.split("(?<=<!-- curves -->)|(?=<!-- /curves -->)", text)
    if len(told) != 1:
        raise SystemExit(f"{_PAGE}: there is no place for the curves")
    rows = {row.split("`")[1]: row for row in told[0].splitlines() if row.startswith("| `")}
    rows |= {name: _row(one) for name, one in by_knob.items()}
    names = [name for name in SamplingParams.model_fields if name in rows]
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|", *(rows[name] for name in names)]
    _PAGE.write_text("\n".join([f"{before}\n", *lines, f"\n{after}"]), "utf-8")
    drawn = dict(_ROW_OF_PLOTS.findall(_PLOTS.read_text("utf-8") if _PLOTS.exists() else ""))
    drawn |= {name: _plots(one.curve) for name, one in by_knob.items()}
    _PLOTS.write_text(_sheet({name: drawn[name] for name in names if name in drawn}), "utf-8")


def _read(folder: Path) -> list[_Measured]:
    read = _lines(folder / "takes.csv")
    rows = [{name: _cell(name, cell) for name, cell in row.items()} for row in read]
    knobs = [name for name in rows[0] if name in SamplingParams.model_fields and name != "seed"]
    heard = folder / "heard" / "heard.csv"
    judged = _lines(heard) if heard.exists() else []
    return [_measured(rows, curve, judged) for curve in curves(rows, knobs)]


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def _measured(rows: StudyTable, curve: Curve, judged: StudyTable) -> _Measured:
    """Return a curve with what `_Measured` has beside it."""
    codes = [
        {
            (row["text"], row["seed"]): row["codes_sha256"]
            for row in rows
            if row[curve.knob] == value
        }
        for value in curve.values
    ]
    changed = [
        sum(after[take] != before[take] for take in before) for before, after in pairwise(codes)
    ]
    wrong = [_wrong(judged, {curve.knob: value}) for value in curve.values] if judged else []
    return _Measured(curve, len(codes[0]), changed, wrong)


def _wrong(judged: StudyTable, setting: Mapping[str, object]) -> float:
    """Return the share of the words of a setting's takes that are wrong."""
    rows = [row for row in judged if json.loads(row["setting"]) == setting]
    edits, words = (sum(int(row[name]) for row in rows) for name in ("edits", "words"))
    return edits / words


def _cell(name: str, text: str) -> object:
    if name in _NUMBERS:
        return float(text) if text else None
    return read_value(text) if name in SamplingParams.model_fields and text else text or None


def _row(measured: _Measured) -> str:
    """Return a row of the table: each measure from the first value to the last."""
    curve = measured.curve
    seconds = [point.value for point in curve.points["seconds"]]
    steps = [abs(after / before - 1) for before, after in pairwise(seconds)]
    cells = [
        " ".join(f"{point.value:.3g}" for point in curve.points[name])
        if name in curve.points
        else ""
        for name in (*_MEASURES, "faults")
    ]
    values = " ".join(f"{value:g}" for value in curve.values)
    wrong = " ".join(f"{100 * one:.2g}" for one in measured.wrong)
    changed = " ".join(map(str, measured.changed))
    cells = [f"`{curve.knob}`", f"{measured.takes}", values, *cells]
    cells += [wrong, f"{max(steps):.0%}", changed]
    return f"| {' | '.join(cells)} |"


def _plots(curve: Curve) -> str:
    """Return the small plots of one curve, beside one another below its name."""
    parts = [f'<text x="4" y="13" font-family="sans-serif" font-size="13">{curve.knob}</text>']
    for column, name in enumerate(one for one in _MEASURES if one in curve.points):
        place = f'<svg x="{column * _COLUMN_WIDTH}" y="18" '
        parts.append(as_svg(curve, name).replace("<svg ", place, 1))
    return "".join(parts)


def _sheet(drawn: Mapping[str, str]) -> str:
    """Return one SVG with the plots of each knob on a line; see `_ROW_OF_PLOTS`."""
    width, height = _COLUMN_WIDTH * len(_MEASURES), (_ROW_HEIGHT + 18) * len(drawn)
    rows = [
        f'<g id="{name}" transform="translate(0 {number * (_ROW_HEIGHT + 18)})">{plots}</g>\n'
        for number, (name, plots) in enumerate(drawn.items())
    ]
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    white = '<rect width="100%" height="100%" fill="white"/>'
    sheet = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{white}\n', *rows, "</svg>\n"]
    return "".join(sheet)


if __name__ == "__main__":
    main(sys.argv[1:])
