"""Write the curves of studies into docs/samplers.md, and their plots into docs/plots/curves.svg.

    python -m scripts.gen_curves /tmp/studies/rp /tmp/studies/temperature

Each folder is what `valle-serve study --out` wrote; of a knob in several the last is taken.
Knobs of no folder keep what was written of them before.
"""

import csv
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from samplers.knobs.params import SamplingParams
from tools.study.grid import read_value
from tools.study.page import Curve, Table, as_svg, curves

_PAGE, _PLOTS = Path("docs/samplers.md"), Path("docs/plots/curves.svg")
_MEASURES = ("seconds", "repeats", "entropy", "missing")
_NUMBERS = frozenset({*_MEASURES, "faults", "silence", "nats", "changed", "hurry", "wer", "cer"})
_ROW_HEIGHT, _COLUMN_WIDTH = 124, 236
_ROW_OF_PLOTS = re.compile(r'^<g id="(\w+)" transform="[^"]*">(.*)</g>$', re.M)


@dataclass(frozen=True)
class _Measured:
    """A curve, its takes a value, and of how many of them the codes changed with each step."""

    curve: Curve
    takes: int
    changed: Sequence[int]


def main(folders: Sequence[str]) -> None:
    """Read the studies, and write table and plots."""
    by_knob = {one.curve.knob: one for folder in folders for one in _read(Path(folder))}
    head = (
        "knob",
        "takes a value",
        "values",
        *_MEASURES,
        "faults",
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
    with (folder / "takes.csv").open(encoding="utf-8") as file:
        read = csv.DictReader(file)
        rows = [{name: _cell(name, cell) for name, cell in row.items()} for row in read]
    knobs = [name for name in rows[0] if name in SamplingParams.model_fields and name != "seed"]
    return [_measured(rows, curve) for curve in curves(rows, knobs)]


def _measured(rows: Table, curve: Curve) -> _Measured:
    """Return a curve with its number of takes, and how many of them each step changed."""
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
    return _Measured(curve, len(codes[0]), changed)


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
    changed = " ".join(map(str, measured.changed))
    cells = [f"`{curve.knob}`", f"{measured.takes}", values, *cells, f"{max(steps):.0%}", changed]
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
