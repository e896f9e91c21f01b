"""The curves of a study with their intervals, as text and as a page; what is wrong in them."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import numpy as np

from app.commands.study.bootstrap import Estimate, estimate_difference, estimate_ratio
from app.commands.study.measures import MEASURE_TITLES

StudyTable = Sequence[Mapping[str, Any]]

_CLIFF: Final = 0.25
_WIDTH = 230
_HEIGHT = 120
_MARGIN = 34


@dataclass(frozen=True)
class Curve:
    """One knob of a study."""

    knob: str
    values: Sequence[Any]  # in order
    points: Mapping[str, Sequence[Estimate]]  # measure -> an interval for each value
    faults: Sequence[str]  # cliffs and dead halves, in words


def means(rows: StudyTable, measure: str) -> dict[str, float]:
    """Return a measure's mean over the takes of each sentence that has it."""
    by_text: dict[str, list[float]] = {}
    for row in rows:
        if row.get(measure) is not None:
            by_text.setdefault(row["text"], []).append(float(row[measure]))
    return {text: float(np.mean(values)) for text, values in by_text.items()}


def interval(rows: StudyTable, measure: str) -> Estimate:
    """Return the mean of a measure over the sentences of some takes."""
    found = np.array([*means(rows, measure).values()] or [0.0])
    return estimate_ratio(found, np.ones_like(found))


def difference(ours: StudyTable, theirs: StudyTable, measure: str) -> Estimate:
    """Return our mean of a measure less theirs, over the same sentences."""
    both = [means(rows, measure) for rows in (ours, theirs)]
    shared = [text for text in both[0] if text in both[1]]
    left, right = (np.array([one[text] for text in shared] or [0.0]) for one in both)
    return estimate_difference((left, np.ones_like(left)), (right, np.ones_like(right)))


def curves(table: StudyTable, knobs: Sequence[str]) -> list[Curve]:
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


def _is_measure(name: str, table: StudyTable, knobs: Sequence[str]) -> bool:
    about = {*knobs, "text", "voice", "seed", "codes_sha256", "finish", "ignored"}
    return name not in about and any(row[name] is not None for row in table)


def _faults(
    values: Sequence[Any], groups: Sequence[StudyTable], points: Mapping[str, Sequence[Estimate]]
) -> Iterator[str]:
    seconds = [point.value for point in points["seconds"]]
    for place in range(1, len(values)):
        before = seconds[place - 1]
        after = seconds[place]
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
        if points["faults"][place].value > 0.5:
            yield f"most takes fail at {values[place]}"


def _figures(curve: Curve) -> Iterator[list[str]]:
    """Yield the cells of a curve's table, the head first."""
    yield [curve.knob, *curve.points]
    for place, value in enumerate(curve.values):
        cells = [points[place] for points in curve.points.values()]
        yield [f"{value}", *(f"{one.value:.3g} [{one.low:.3g}, {one.high:.3g}]" for one in cells)]


def as_svg(curve: Curve, measure: str) -> str:
    """Return a small plot of one measure over a knob."""
    points = curve.points[measure]
    least = min(one.low for one in points)
    most = max(one.high for one in points)
    low = min(least, 0.0)
    high = most if most > least else least + 1
    across = [
        _MARGIN + (_WIDTH - _MARGIN - 8) * place / max(1, len(points) - 1)
        for place in range(len(points))
    ]

    def up(value: float) -> float:
        return 18 + (_HEIGHT - 36) * (high - value) / ((high - low) or 1)

    line = " ".join(f"{x:.1f},{up(one.value):.1f}" for x, one in zip(across, points, strict=True))
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


@dataclass(frozen=True)
class Heading:
    """What a page tells beside its curves."""

    about: str  # the command
    takes: int  # how many there are
    race: Sequence[str] = ()  # how the best was found, in lines
    sounds: Sequence[tuple[str, bytes]] = ()  # title and MP3 of the takes that can be heard


def as_page(found: Sequence[Curve], heading: Heading) -> str:
    """Return one HTML page with all curves, their figures, the faults and the sounds."""
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Study</title>'
        "<style>body{font:15px sans-serif;margin:2rem;max-width:70rem}td,th{padding:2px 8px;"
        "text-align:right;border-bottom:1px solid #ddd}table{border-collapse:collapse}"
        "svg{margin:4px}li.fault{color:#a00}</style>"
        f"<h1>Study</h1><p><code>{escape(heading.about)}</code></p>"
        f"<p>{heading.takes} takes; 95 % intervals by drawing the sentences again.</p>"
    ]
    if heading.race:
        lines = "".join(f"<li>{escape(line)}</li>" for line in heading.race)
        parts.append(f"<h2>Race</h2><ol>{lines}</ol>")
    parts.append("<dl>")
    parts += [
        f"<dt><b>{name}</b></dt><dd>{escape(text)}</dd>" for name, text in MEASURE_TITLES.items()
    ]
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
    if heading.sounds:
        parts.append("<h2>Sounds</h2>")
    for title, mp3 in heading.sounds:
        source = f"data:audio/mpeg;base64,{b64encode(mp3).decode()}"
        parts.append(f'<p>{escape(title)}<br><audio controls preload="none" src="{source}"></p>')
    return "".join(parts) + "</html>\n"
