"""Backtracking benchmark: the same takes with backtracking off and on, judged from outside.

    python -m benchmarks.speech.backtracking --sentences 40 --seeds 5 --minutes 25 --out takes.json

Failures are provoked: without guidance, and with a frequency penalty that rewards repetition. A
take is faulty if it is over 1.8 or under 0.5 times the teacher's length, ends in 0.7 s of silence,
repeats a part of level 0 four times (0.4 s at least), or if the engine gave up. Target: at most
half as many faulty takes as without backtracking, and no higher word error rate.

An interrupted run resumes: takes are stored in a file.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.calibration import SENTENCES, read_sentences
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
from training.judging.bootstrap import estimate_difference
from training.judging.report import measures, report, sums

PROVOKING: Mapping[str, Any] = {
    "temperature": 0.5,
    "frequency_penalty": -0.3,
    "nar_decision": "mean",
}
"""A quarter of the takes loop; with temperature 0.1 and top-p 0.9 unguided, 1 of 200 did."""

OFF = Setting("off", PROVOKING)
# 0.67 s: longer than any silence within 5,000 sentences of the teacher.
ON = Setting("on", {**PROVOKING, "backtrack": True, "backtrack_max_silence": 50})


def pairs(tasks: Sequence[TakeTask], file: TakeFile) -> tuple[list[Take], list[Take]]:
    """Return takes recorded both without and with backtracking, in the same order."""
    made = {(task.setting.name, task.text, task.seed): file.find(task) for task in tasks}
    off, on = [], []
    for (name, text, seed), take in made.items():
        other = made.get((ON.name, text, seed))
        if name == OFF.name and take is not None and other is not None:
            off.append(take)
            on.append(other)
    return off, on


def compare(off: Sequence[Take], on: Sequence[Take]) -> tuple[dict[str, Any], str]:
    """Return the figures as JSON data and as printed text.

    Args:
        off: Takes without backtracking.
        on: Takes of the same sentences and seeds with it.
    """
    rows = {"off": [take.judgement for take in off], "on": [take.judgement for take in on]}
    figures, table = report(rows)
    lines = [table, ""]
    differences = {}
    for measure in measures([EAR]):
        both = sums(rows["on"], measure), sums(rows["off"], measure)
        if measure.percent and both[0] is not None and both[1] is not None:
            less = estimate_difference(both[0], both[1])
            differences[measure.name] = asdict(less)
            shown = less.scaled(100.0)
            lines.append(
                f"{measure.name}, on less off: {shown.value:+.1f} points"
                f" [{shown.low:+.1f}, {shown.high:+.1f}]"
            )
    faulty = {name: sum(row.ending.faulty for row in rows[name]) for name in rows}
    causes = Counter(cause for take in on for cause in take.backtracks)
    lines += [
        f"At fault: {faulty['off']} of {len(off)} without, {faulty['on']} of {len(on)} with it.",
        f"Taken back: {sum(bool(take.backtracks) for take in on)} takes,"
        f" {sum(causes.values())} times ({dict(causes)}).",
        f"Ended as: {dict(Counter(take.finish_reason for take in off))} without,"
        f" {dict(Counter(take.finish_reason for take in on))} with it.",
        f"At least halved: {_halved(**faulty)}.",
    ]
    data = {"figures": figures, "on_less_off": differences, "faulty": faulty, "causes": causes}
    return data, "\n".join(lines)


def _halved(off: int, on: int) -> str:
    if not off:
        return "there was nothing to halve"
    return "yes" if 2 * on <= off else "no"


def main() -> None:
    """Run the command line."""
    parser = argument_parser(__doc__, "backtracking", sentences=40, seeds=5, minutes=25.0)
    args = parser.parse_args()
    texts = read_sentences(SENTENCES)[: args.sentences]
    tasks = plan([OFF, ON], texts, args.seeds)
    file = record_as_asked(tasks, args)
    off, on = pairs(tasks, file)
    data, table = compare(off, on)
    print(f"Settings: {dict(PROVOKING)}; {len(off)} of {len(tasks) // 2} pairs made.\n\n{table}")
    if args.out:
        args.out.write_text(json.dumps({"knobs": [OFF.knobs, ON.knobs], **data}, indent=1) + "\n")


if __name__ == "__main__":
    main()
