"""Effects of knobs on the built-in voice: curves with 95 % intervals, for docs/samplers.md.

    python -m benchmarks.speech.effects --sentences 24 --minutes 15 --out effects.json --docs

Each chart varies one knob with others fixed. Takes are stored in a file, so that an interrupted run
resumes; figures are of the takes recorded so far. With `--docs` the curves are written to
docs/plots and into the page.
"""

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from app.calibration import SENTENCES, read_sentences
from benchmarks.harness.curves import draw
from benchmarks.speech.backtracking import PROVOKING
from benchmarks.speech.recording import (
    EAR,
    Setting,
    Take,
    TakeFile,
    TakeTask,
    argument_parser,
    plan,
    record_as_asked,
)
from training.judging.bootstrap import Estimate, estimate_ratio, estimate_share

ROOT = Path(__file__).resolve().parents[2]
PAGE, PLOTS = ROOT / "docs" / "samplers.md", ROOT / "docs" / "plots"
BEGIN, END = "<!-- effects -->", "<!-- /effects -->"

BUILTIN: Mapping[str, Any] = {"preset": "builtin"}
WARM: Mapping[str, Any] = {"preset": "builtin", "temperature": 1.0, "top_p": 1.0}
LOOPING: Mapping[str, Any] = {**PROVOKING, "repetition_penalty_mode": "additive"}


@dataclass(frozen=True)
class Metric:
    """A ratio of two sums over takes.

    Args:
        name: Including its unit.
        part: A take's contribution to numerator and denominator.
        share: Whether it is a share of takes, whose interval is not empty at 0.
    """

    name: str
    part: Callable[[Take], tuple[float, float]]
    share: bool = False

    def of(self, takes: Sequence[Take]) -> Estimate:
        """Return the estimate over takes, with an interval over sentences."""
        by_text: dict[str, list[float]] = {}
        for take in takes:
            over, under = self.part(take)
            total = by_text.setdefault(take.judgement.text, [0.0, 0.0])
            total[0] += over
            total[1] += under
        numerators, denominators = np.array(list(by_text.values())).T
        estimate = estimate_share if self.share else estimate_ratio
        return estimate(numerators, denominators)


def _errors(take: Take) -> tuple[float, float]:
    errors = take.judgement.errors[EAR]
    return 100.0 * errors.word_edits, errors.words


def _letters(take: Take) -> tuple[float, float]:
    errors = take.judgement.errors[EAR]
    return 100.0 * errors.letter_edits, errors.letters


WER = Metric("WER, %", _errors)
CER = Metric("CER, %", _letters)
PACE = Metric("seconds a phoneme", lambda take: (take.judgement.spoken_s, take.phonemes))
LOOPS = Metric("share with a loop", lambda take: (take.looped, 1.0), share=True)


@dataclass(frozen=True)
class Chart:
    """One varied knob.

    Args:
        knob: The knob on the x axis.
        values: Its values.
        metrics: One panel each.
        lines: Fixed knobs of each line, by its name.
    """

    knob: str
    values: Sequence[float]
    metrics: Sequence[Metric]
    lines: Mapping[str, Mapping[str, Any]]

    def settings(self) -> Iterator[tuple[str, float, Setting]]:
        """Yield line, value and setting of every point."""
        for line, fixed in self.lines.items():
            for value in self.values:
                name = f"{self.knob} {value:g}" + (f" ({line})" if len(self.lines) > 1 else "")
                yield line, value, Setting(name, {**fixed, self.knob: value})


CHARTS = (
    Chart(
        "length_penalty",
        (-2.0, -1.0, 0.0, 1.0, 2.0),
        (PACE, WER),
        {"additive": {**BUILTIN, "length_penalty_mode": "additive"}},
    ),
    Chart(
        "repetition_penalty",
        (1.0, 1.05, 1.1, 1.2, 1.4),
        (LOOPS, WER),
        {
            "decay 0": {**LOOPING, "repetition_penalty_decay": 0.0},
            "decay -0.5": {**LOOPING, "repetition_penalty_decay": -0.5},
        },
    ),
    Chart("temperature", (0.0, 0.25, 0.5, 0.75, 1.0, 1.25), (WER, CER), {"builtin": BUILTIN}),
    Chart("cfg_strength", (1.0, 1.5, 2.0, 3.0, 4.0), (WER, PACE), {"builtin": BUILTIN}),
    Chart("top_p", (0.5, 0.7, 0.9, 1.0), (WER, CER), {"temperature 1": WARM}),
    Chart("min_p", (0.0, 0.02, 0.05, 0.1, 0.2), (WER, CER), {"temperature 1": WARM}),
)

Points = dict[str, list[tuple[float, Estimate, int]]]
"""By line: value of the knob, estimate, number of takes."""


def tasks(charts: Sequence[Chart], texts: Sequence[str], seeds: int) -> list[TakeTask]:
    """Return the takes that the charts need."""
    return plan([setting for chart in charts for *_, setting in chart.settings()], texts, seeds)


def points(chart: Chart, metric: Metric, wanted: Sequence[TakeTask], file: TakeFile) -> Points:
    """Return the points of one panel, without those that have no takes."""
    found: Points = {}
    for line, value, setting in chart.settings():
        takes = [
            take
            for task in wanted
            if task.setting == setting and (take := file.find(task)) is not None
        ]
        if takes:
            found.setdefault(line, []).append((value, metric.of(takes), len(takes)))
    return found


def table(chart: Chart, panels: Mapping[str, Points]) -> str:
    """Return the figures of a chart as a Markdown table."""
    names = list(panels)
    rows: dict[tuple[str, float], list[str]] = {}
    for panel in panels.values():
        for line, entries in panel.items():
            for value, estimate, count in entries:
                row = rows.setdefault((line, value), [str(count)])
                row.append(f"{estimate.value:.3g} [{estimate.low:.3g}, {estimate.high:.3g}]")
    lines = [f"| {chart.knob} | over | takes | {' | '.join(names)} |", "| --- " * (3 + len(names))]
    lines[1] += "|"
    lines += [f"| {value:g} | {line} | {' | '.join(row)} |" for (line, value), row in rows.items()]
    return "\n".join(lines)


def write_page(parts: Sequence[str], command: str) -> None:
    """Replace the figures between the markers of the page."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    stamp = f"`{command}` on {datetime.now(UTC).date().isoformat()}; 95 % intervals over sentences."
    PAGE.write_text("\n\n".join([before + BEGIN, stamp, *parts, END + after]), "utf-8")


def main() -> None:
    """Run the command line."""
    parser = argument_parser(__doc__, "effects", sentences=24, seeds=1, minutes=15.0)
    parser.add_argument("--charts", nargs="+", metavar="KNOB", help="only these")
    parser.add_argument("--plots", type=Path, help="folder for the curves")
    parser.add_argument("--docs", action="store_true", help="into docs/samplers.md and docs/plots")
    args = parser.parse_args()
    charts = [chart for chart in CHARTS if not args.charts or chart.knob in args.charts]
    wanted = tasks(charts, read_sentences(SENTENCES)[: args.sentences], args.seeds)
    file = record_as_asked(wanted, args)
    figures: dict[str, Any] = {}
    parts = []
    folder = PLOTS if args.docs else args.plots
    for chart in charts:
        panels = {metric.name: points(chart, metric, wanted, file) for metric in chart.metrics}
        figures[chart.knob] = {
            name: {
                line: [{"at": at, "takes": count, **asdict(found)} for at, found, count in entries]
                for line, entries in panel.items()
            }
            for name, panel in panels.items()
        }
        print(f"\n{table(chart, panels)}")
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            draw(chart.knob, panels, folder / f"{chart.knob}.png")
            parts += [f"![{chart.knob}](plots/{chart.knob}.png)", table(chart, panels)]
    if args.out:
        args.out.write_text(json.dumps(figures, indent=1) + "\n")
    if args.docs:
        write_page(parts, shlex.join(["python", "-m", "benchmarks.speech.effects", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
