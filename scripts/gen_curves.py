"""Write the curves of studies into docs/samplers.md, and their plots into docs/plots/curves.svg.

    python -m scripts.gen_curves /tmp/studies/rp /tmp/studies/temperature

Each folder is what `valle-serve study --out` wrote; of a knob in several the last is taken.
"""

import csv
import re
import sys
from collections.abc import Sequence
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


@dataclass(frozen=True)
class _Measured:
    """A curve, its takes a value, and of how many of them the codes changed with each step."""

    curve: Curve
    takes: int
    changed: Sequence[int]


def main(folders: Sequence[str]) -> None:
    """Read the studies, and write table and plots."""
    by_knob = {one.curve.knob: one for folder in folders for one in _read(Path(folder))}
    found = [by_knob[name] for name in SamplingParams.model_fields if name in by_knob]
    head = (
        "knob",
        "takes a value",
        "values",
        *_MEASURES,
        "faults",
        "largest step",
        "codes changed",
    )
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|", *map(_row, found)]
    text = _PAGE.read_text("utf-8")
    table = "<!-- curves -->\n\n" + "\n".join(lines) + "\n\n<!-- /curves -->"
    text, count = re.subn("<!-- curves -->.*<!-- /curves -->", lambda _: table, text, flags=re.S)
    if count != 1:
        raise SystemExit(f"{_PAGE}: there is no place for the curves")
    _PAGE.write_text(text, "utf-8")
    _PLOTS.write_text(_sheet([one.curve for one in found]), "utf-8")


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


def _sheet(found: Sequence[Curve]) -> str:
    """Return one SVG with a row of small plots for each curve."""
    width, height = _COLUMN_WIDTH * len(_MEASURES), (_ROW_HEIGHT + 18) * len(found)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}"><rect width="100%" height="100%" fill="white"/>'
    ]
    for number, curve in enumerate(found):
        top = number * (_ROW_HEIGHT + 18)
        place = f'x="4" y="{top + 13}" font-family="sans-serif" font-size="13"'
        parts.append(f"<text {place}>{curve.knob}</text>")
        for column, name in enumerate(one for one in _MEASURES if one in curve.points):
            place = f'<svg x="{column * _COLUMN_WIDTH}" y="{top + 18}" '
            parts.append(as_svg(curve, name).replace("<svg ", place, 1))
    return "".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    main(sys.argv[1:])
