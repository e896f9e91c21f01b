"""Draw a training run: losses over time, and where the frames look in the text.

    python -m training.plots LOG.jsonl -o losses.png
    python -m training.plots --attention FILE.npz -o attention.png

A log of the language model has a row for each level and split (``step``, ``split``, ``level``,
``loss``, ``accuracy``); one of the codec has a row every few steps with its losses by name. The
attention file holds ``weights`` ``[layers, heads, frames, phonemes]`` and ``phonemes``.
"""

import argparse
import json
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

DPI = 110
_NOT_LOSSES = {"step", "frames_per_s"}


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON-lines log, less a last one cut off in mid-writing.

    Raises:
        ValueError: There is no row, or a row other than the last is broken.
    """
    rows: list[dict[str, Any]] = []
    lines = path.read_text("utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number < len(lines):
                raise ValueError(f"{path}:{number}: {error}") from error
    if not rows:
        raise ValueError(f"{path} holds no row")
    return rows


def draw_losses(rows: list[dict[str, Any]]) -> Figure:
    """Return the curves of a log, of the language model or of the codec."""
    return _draw_model(rows) if "level" in rows[0] else _draw_codec(rows)


def _draw_model(rows: list[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(11, 6), layout="constrained")
    losses, accuracies = figure.subplots(1, 2)
    levels = sorted({row["level"] for row in rows})
    colours = mpl.colormaps["viridis"](np.linspace(0.0, 0.9, max(len(levels), 2)))
    for level, colour in zip(levels, colours, strict=False):
        for split, style in (("train", {"lw": 0.8, "alpha": 0.45}), ("val", {"lw": 1.8})):
            chosen = [row for row in rows if (row["level"], row["split"]) == (level, split)]
            steps = [row["step"] for row in chosen]
            label = f"level {level}" if split == "val" else None
            for axes, key in ((losses, "loss"), (accuracies, "accuracy")):
                values = [row.get(key, np.nan) for row in chosen]
                axes.plot(steps, values, color=colour, label=label, **style)
    _finish(losses, "loss, nats (thick: validation, thin: training)")
    _finish(accuracies, "accuracy")
    losses.legend(fontsize="small")
    return figure


def _draw_codec(rows: list[dict[str, Any]]) -> Figure:
    names = [name for name in dict.fromkeys(chain(*rows)) if name not in _NOT_LOSSES]
    columns = -(-len(names) // 2)
    figure = Figure(figsize=(3.5 * columns, 6), layout="constrained")
    panels = figure.subplots(2, columns, squeeze=False).flatten()
    for axes, name in zip(panels, names, strict=False):
        chosen = [row for row in rows if name in row]
        axes.plot([row["step"] for row in chosen], [row[name] for row in chosen])
        _finish(axes, name)
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    return figure


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel("step")
    axes.grid(alpha=0.25)


def draw_attention(weights: NDArray[np.float32], phonemes: list[str]) -> Figure:
    """Return a picture of every head, and the head that looks at one phoneme at a time, enlarged.

    Args:
        weights: ``[layers, heads, frames, phonemes]``.
        phonemes: What the last axis stands for.

    Raises:
        ValueError: The two do not fit together.
    """
    if weights.ndim != 4 or weights.shape[3] != len(phonemes):
        raise ValueError(f"weights are {weights.shape}, with {len(phonemes)} phonemes")
    layers, heads = weights.shape[:2]
    layer, head = sharpest_head(weights)
    figure = Figure(figsize=(6 + 1.6 * heads, max(5.0, 1.5 * layers)), layout="constrained")
    halves = figure.subfigures(1, 2, squeeze=False, width_ratios=[6, 1.6 * heads])
    large, small = halves[0]
    axes = large.subplots()
    _show(axes, weights[layer, head], f"sharpest: layer {layer}, head {head}")
    axes.set_yticks(range(len(phonemes)), phonemes, fontsize=7)
    axes.set_xlabel("frame")
    grid = small.subplots(layers, heads, squeeze=False)
    for row in range(layers):
        for column in range(heads):
            _show(grid[row, column], weights[row, column], f"{row}.{column}")
            grid[row, column].set_axis_off()
    return figure


def sharpest_head(weights: NDArray[np.float32]) -> tuple[int, int]:
    """Return layer and head whose frames most nearly look at one phoneme each, over all of them.

    A head whose frames all look at the same phoneme (often the last) is as sharp and tells
    nothing, so each phoneme counts with its best frame: ``[layers, heads]`` of those means.
    """
    best_frame = weights.max(axis=2).mean(axis=2)
    layer, head = np.unravel_index(int(best_frame.argmax()), best_frame.shape)
    return int(layer), int(head)


def _show(axes: Axes, weights: NDArray[np.float32], title: str) -> None:
    axes.imshow(weights.T, aspect="auto", origin="lower", interpolation="nearest", cmap="magma")
    axes.set_title(title, fontsize="small")


def main() -> None:
    """Draw a log, or an attention file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("log", nargs="?", type=Path)
    what.add_argument("--attention", type=Path, metavar="FILE")
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    if args.attention:
        with np.load(args.attention) as file:
            figure = draw_attention(file["weights"], [str(name) for name in file["phonemes"]])
    else:
        figure = draw_losses(read_log(args.log))
    figure.savefig(args.out, dpi=DPI)
    print(args.out)


if __name__ == "__main__":
    main()
