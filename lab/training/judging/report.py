"""From judgements to figures with intervals, and from those to one table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from app.commands.study.bootstrap import (
    Estimate,
    Sums,
    estimate_difference,
    estimate_ratio,
    estimate_share,
)
from lab.training.judging.panel import Judgement

TEACHER = "teacher"  # the system that the others are compared with, if it is there

Part: TypeAlias = tuple[float, float] | None
"""What one recording adds to the two sums of a ratio; None where it has nothing to say."""


@dataclass(frozen=True)
class Measure:
    """A ratio of two sums over recordings."""

    name: str
    part: Callable[[Judgement], Part]
    kind: Literal["ratio", "share"] = "ratio"
    percent: bool = False
    beside_teacher: bool = False
    """Whether the distance to the teacher is a row of its own."""


Figures: TypeAlias = dict[str, dict[str, Estimate]]
"""Measure -> system -> figure."""


def measures(judges: Sequence[str]) -> list[Measure]:
    """Return every measure, in the order of the table; two for each Whisper."""
    return [
        *(measure for name in judges for measure in _of_words(name)),
        _share("runaway (over 1.8x the teacher's)", lambda row: row.ending.runaway),
        _share("cut short (under 0.5x)", lambda row: row.ending.cut_short),
        _share("silent ending (0.7 s)", lambda row: row.ending.silent),
        _share("stuck in a loop, or gave up", lambda row: row.ending.stuck),
        _share("any of these four", lambda row: row.ending.faulty),
        Measure(
            "length of speech over the teacher's", lambda row: (row.spoken_s, row.teacher_spoken_s)
        ),
        Measure("DNSMOS overall", lambda row: _mean(row.dnsmos), beside_teacher=True),
        Measure("similarity to the prompt", lambda row: _mean(row.similarity)),
        Measure(
            "seconds of audio a second",
            lambda row: None if row.wall_s is None else (row.duration_s, row.wall_s),
        ),
    ]


def _of_words(judge: str) -> tuple[Measure, Measure]:
    def words(row: Judgement) -> Part:
        return row.errors[judge].word_edits, row.errors[judge].words

    def letters(row: Judgement) -> Part:
        return row.errors[judge].letter_edits, row.errors[judge].letters

    return (
        Measure(f"WER ({judge})", words, percent=True, beside_teacher=True),
        Measure(f"CER ({judge})", letters, percent=True),
    )


def _share(name: str, happened: Callable[[Judgement], bool | None]) -> Measure:
    return Measure(name, lambda row: _mean(happened(row)), kind="share", percent=True)


def _mean(value: float | None) -> Part:
    return None if value is None else (float(value), 1.0)


def sums(rows: Sequence[Judgement], measure: Measure) -> tuple[Sums, Sums] | None:
    """Return the numerators and denominators of a measure by sentence, or None without any."""
    by_text: dict[str, list[float]] = {row.text: [0.0, 0.0] for row in rows}
    for row in rows:
        part = measure.part(row)
        if part is not None:
            by_text[row.text][0] += part[0]
            by_text[row.text][1] += part[1]
    numerators, denominators = np.array(list(by_text.values())).T
    return (numerators, denominators) if denominators.any() else None


def figure_out(systems: Mapping[str, Sequence[Judgement]]) -> tuple[Figures, list[Measure]]:
    """Return each measure's figure for each system, and the measures with the added differences."""
    judges = list(next(iter(systems.values()))[0].errors)
    figures: Figures = {}
    shown: list[Measure] = []
    for measure in measures(judges):
        by_system = {name: sums(rows, measure) for name, rows in systems.items()}
        estimate = estimate_share if measure.kind == "share" else estimate_ratio
        shown.append(measure)
        figures[measure.name] = {
            name: estimate(*both) for name, both in by_system.items() if both is not None
        }
        base = by_system.get(TEACHER)
        if measure.beside_teacher and base is not None and len(systems) > 1:
            difference = replace(measure, name=f"{measure.name}, less the teacher's")
            shown.append(difference)
            figures[difference.name] = {
                name: estimate_difference(both, base)
                for name, both in by_system.items()
                if both is not None and name != TEACHER
            }
    return figures, shown


def report(systems: Mapping[str, Sequence[Judgement]]) -> tuple[dict[str, Any], str]:
    """Return all figures as JSON data, and the table in Markdown."""
    figures, shown = figure_out(systems)
    names = list(systems)
    lines = [f"| | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
    for measure in shown:
        cells = [_cell(figures[measure.name].get(name), measure.percent) for name in names]
        lines.append(f"| {measure.name} | {' | '.join(cells)} |")
    rows = next(iter(systems.values()))
    recordings, sentences = len(rows), len({row.text for row in rows})
    lines.append(f"\n{recordings} recordings of {sentences} sentences; 95 % intervals in brackets.")
    data = {
        name: {system: asdict(estimate) for system, estimate in by_system.items()}
        for name, by_system in figures.items()
    }
    return data, "\n".join(lines)


def _cell(estimate: Estimate | None, percent: bool) -> str:
    if estimate is None:
        return ""
    digits, unit = (1, " %") if percent else (2, "")
    shown = estimate.scaled(100.0) if percent else estimate
    return f"{shown.value:.{digits}f}{unit} [{shown.low:.{digits}f}, {shown.high:.{digits}f}]"
