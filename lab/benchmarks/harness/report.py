"""Report of a benchmark: a table and its targets on stdout, and the same as JSON."""

import argparse
import json
import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from operator import eq, ge, le, lt
from pathlib import Path
from typing import Any, Final

TableRow = Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """A figure with the bound that it should meet."""

    what: str  # name of the figure
    figure: float  # the measured value
    asked: str  # the bound, as printed
    holds: bool  # whether the figure meets it


_RELATIONS: Final = {"<": lt, "<=": le, "==": eq, ">=": ge}


def target(what: str, figure: float, relation: str, bound: float) -> Target:
    """Return a figure with its bound, as in `target("ratio", 1.4, "<=", 2)`."""
    return Target(what, figure, f"{relation} {bound:g}", _RELATIONS[relation](figure, bound))


def argument_parser(description: str | None, *, url: bool = False) -> argparse.ArgumentParser:
    """Return the arguments that benchmarks share; ``url`` adds that of a server that runs."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if url:
        parser.add_argument("--url", help="of a server that runs; else one is started")
    parser.add_argument("--out", type=Path, help="JSON file")
    return parser


def machine() -> dict[str, Any]:
    """Return machine, time, command and load average, for the report."""
    return {
        "machine": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
    }


def print_table(rows: Sequence[TableRow]) -> None:
    """Print rows with equal columns as a Markdown table."""
    columns = list(rows[0])
    print("| " + " | ".join(columns) + " |")
    print("| " + " | ".join("---" for _ in columns) + " |")
    for row in rows:
        print("| " + " | ".join(_shown(row[column]) for column in columns) + " |")


def conclude(
    rows: Sequence[TableRow],
    targets: Sequence[Target],
    out: Path | None,
    started: TableRow,
    series: TableRow | None = None,
) -> int:
    """Print the table and the targets, and write the report; return 1 if a target is missed.

    ``started`` is `machine`, called before the measurement, ``series`` further data for the
    file.
    """
    print_table(rows)
    print()
    for target in targets:
        verdict = "holds" if target.holds else "DOES NOT HOLD"
        print(f"{target.what}: {_shown(target.figure)}, asked {target.asked}: {verdict}")
    if out is not None:
        report = {**started, "rows": [*rows], "targets": [asdict(target) for target in targets]}
        report = _without_nan(report | dict(series or {}))
        out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return int(not all(target.holds for target in targets))


def _without_nan(value: Any) -> Any:
    """Return a value with NaN replaced by None, as JSON has no NaN."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, Mapping):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return value


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
