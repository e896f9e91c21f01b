"""The curves of a study with their intervals, as text and as a page; what is wrong in them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import numpy as np

from app.commands.studies.measures import TITLES

Table = Sequence[Mapping[str, Any]]

_DRAWS, _OUTSIDE = 2_000, 0.05
_CLIFF: Final = 0.25
_WIDTH, _HEIGHT, _MARGIN = 230, 120, 34


@dataclass(frozen=True)
class Interval:
    """A mean over sentences with its 95 % interval by drawing the sentences again."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """One knob of a study.

    Attributes:
        knob: Its name.
        values: In order.
        points: Measure -> an interval for each value.
        faults: Cliffs and dead halves, in words.
    """

    knob: str
    values: Sequence[Any]
    points: Mapping[str, Sequence[Interval]]
    faults: Sequence[str]


def interval(rows: Table, measure: str) -> Interval:
    """Return the mean of a measure over the sentences of some takes."""
    by_text: dict[str, list[float]] = {}
    for row in rows:
        if row.get(measure) is not None:
            by_text.setdefault(row["text"], []).append(float(row[measure]))
    means = np.array([float(np.mean(values)) for values in by_text.values()] or [0.0])
    drawn = np.random.default_rng(0).integers(0, len(means), (_DRAWS, len(means)))
    low, high = np.quantile(means[drawn].mean(axis=1), (_OUTSIDE / 2, 1 - _OUTSIDE / 2))
    return Interval(float(means.mean()), float(low), float(high))


def curves(table: Table, knobs: Sequence[str]) -> list[Curve]:
    """Return the curve of each knob, over the takes that set it."""
    measures = [name for name in table[0] if _is_measure(name, table, knobs)]
    found = []
    for knob in knobs:
        rows = [row for row in table if row[knob] is not None]
        values = list({repr(row[knob]): row[knob] for row in rows}.values())
        groups = [[row for row in rows if row[knob] == value] for value in values]
        points = {name: [interval(group, name) for group in groups] for name in measures}
        found.append(Curve(knob, values, points, list(_faults(values, groups, points))))
    return found


def _is_measure(name: str, table: Table, knobs: Sequence[str]) -> bool:
    about = {*knobs, "text", "voice", "seed", "codes_sha256", "finish", "ignored"}
    return name not in about and any(row[name] is not None for row in table)


def _faults(
    values: Sequence[Any], groups: Sequence[Table], points: Mapping[str, Sequence[Interval]]
) -> Iterator[str]:
    seconds = [point.mean for point in points["seconds"]]
    for place in range(1, len(values)):
        before, after = seconds[place - 1], seconds[place]
        if abs(after - before) > _CLIFF * before:
            step = f"{values[place - 1]} to {values[place]}"
            yield f"cliff from {step}: {before:.2f} s, {after:.2f} s"
    middle = len(values) // 2
    for first, last in ((0, middle), (middle, len(values) - 1)):
        spoken = {
            frozenset((row["text"], row["voice"], row["seed"], row["codes_sha256"]) for row in one)
            for one in groups[first : last + 1]
        }
        if last > first and len(spoken) == 1:
            yield f"dead from {values[first]} to {values[last]}"
    for place in (0, -1):
        if points["faults"][place].mean > 0.5:
            yield f"most takes fail at {values[place]}"


def as_markdown(curve: Curve) -> str:
    """Return the figures of a curve as a table."""
    head, *body = (f"| {' | '.join(row)} |" for row in _figures(curve))
    return "\n".join([head, "| --- " * (1 + len(curve.points)) + "|", *body])


def _figures(curve: Curve) -> Iterator[list[str]]:
    """Yield the cells of a curve's table, the head first."""
    yield [curve.knob, *curve.points]
    for place, value in enumerate(curve.values):
        cells = [points[place] for points in curve.points.values()]
        yield [f"{value}", *(f"{one.mean:.3g} [{one.low:.3g}, {one.high:.3g}]" for one in cells)]


def as_svg(curve: Curve, measure: str) -> str:
    """Return a small plot of one measure over a knob."""
    points = curve.points[measure]
    low, high = min(one.low for one in points), max(one.high for one in points)
    low, high = min(low, 0.0) if low < 0 else 0.0, high if high > low else low + 1
    across = [
        _MARGIN + (_WIDTH - _MARGIN - 8) * place / max(1, len(points) - 1)
        for place in range(len(points))
    ]

    def up(value: float) -> float:
        return 18 + (_HEIGHT - 36) * (high - value) / ((high - low) or 1)

    line = " ".join(f"{x:.1f},{up(one.mean):.1f}" for x, one in zip(across, points, strict=True))
    bars = "".join(
        f'<path d="M{x:.1f} {up(one.low):.1f}V{up(one.high):.1f}"/>'
        for x, one in zip(across, points, strict=True)
    )
    ends = f"{curve.values[0]}", f"{curve.values[-1]}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}"'
        f' role="img" aria-label="{escape(measure)} over {escape(curve.knob)}"'
        ' font-family="sans-serif" font-size="10" fill="#555">'
        f'<g stroke="#78a" fill="none">{bars}</g>'
        f'<polyline points="{line}" fill="none" stroke="#246" stroke-width="1.5"/>'
        f'<text x="2" y="11">{escape(measure)}</text><text x="2" y="24">{high:.3g}</text>'
        f'<text x="2" y="{_HEIGHT - 18}">{low:.3g}</text>'
        f'<text x="{_MARGIN}" y="{_HEIGHT - 4}">{escape(ends[0])}</text>'
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 4}" text-anchor="end">{escape(ends[1])}</text></svg>'
    )


def as_page(found: Sequence[Curve], about: str, takes: int) -> str:
    """Return one HTML page with all curves, their figures and the faults."""
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Study</title>'
        "<style>body{font:15px sans-serif;margin:2rem;max-width:70rem}td,th{padding:2px 8px;"
        "text-align:right;border-bottom:1px solid #ddd}table{border-collapse:collapse}"
        "svg{margin:4px}li.fault{color:#a00}</style>"
        f"<h1>Study</h1><p><code>{escape(about)}</code></p>"
        f"<p>{takes} takes; 95 % intervals by drawing the sentences again.</p><dl>"
    ]
    parts += [f"<dt><b>{name}</b></dt><dd>{escape(text)}</dd>" for name, text in TITLES.items()]
    parts.append("</dl>")
    for curve in found:
        parts.append(f"<h2>{escape(curve.knob)}</h2>")
        faults = "".join(f'<li class="fault">{escape(one)}</li>' for one in curve.faults)
        parts.append(f"<ul>{faults or '<li>No cliff, no dead half.</li>'}</ul>")
        parts += [as_svg(curve, name) for name in curve.points]
        parts.append("<details><summary>Figures</summary><table>")
        for number, row in enumerate(_figures(curve)):
            tag = "td" if number else "th"
            cells = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)
            parts.append(f"<tr>{cells}</tr>")
        parts.append("</table></details>")
    return "".join(parts) + "</html>\n"
