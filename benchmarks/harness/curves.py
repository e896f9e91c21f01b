"""Plots of figures over a knob."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from training.judging.bootstrap import Estimate

DPI = 90


def draw(
    knob: str,
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, Estimate, int]]]],
    path: Path,
) -> None:
    """Write a PNG with one panel a metric.

    Args:
        knob: Label of the x axis.
        panels: By metric and line: value of the knob, estimate, number of takes.
        path: The file to write.
    """
    figure = Figure(figsize=(4.2 * len(panels), 3.0), layout="constrained")
    every = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (metric, lines) in zip(every, panels.items(), strict=True):
        top = max((found.high for points in lines.values() for _, found, _ in points), default=0)
        for line, points in lines.items():
            at = np.array([value for value, *_ in points])
            values = np.array([[found.value, found.low, found.high] for _, found, _ in points])
            spread = np.abs(values[:, 1:] - values[:, :1]).T
            axes.errorbar(at, values[:, 0], spread, marker="o", capsize=3, label=line)
        axes.set_xlabel(knob)
        axes.set_title(metric, fontsize="medium")
        axes.set_ylim(0, 1.08 * top or 1)
        axes.grid(alpha=0.25)
        if len(lines) > 1:
            axes.legend(fontsize="small")
    figure.savefig(path, dpi=DPI)
