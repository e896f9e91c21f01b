"""What a measurement says: one table on stdout, gates below it, the same as JSON."""

import json
import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Gate:
    """One figure that was asked for.

    Attributes:
        what: In words.
        figure: What was measured.
        asked: The bound, in words.
        holds: Whether the figure is within it.
    """

    what: str
    figure: float
    asked: str
    holds: bool


def machine() -> dict[str, Any]:
    """Return where and when; with the load, as figures of a busy machine mean little."""
    return {
        "machine": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
    }


def print_table(rows: Sequence[Row]) -> None:
    """Print rows that have the same columns."""
    columns = list(rows[0])
    print("| " + " | ".join(columns) + " |")
    print("| " + " | ".join("---" for _ in columns) + " |")
    for row in rows:
        print("| " + " | ".join(_shown(row[column]) for column in columns) + " |")


def conclude(
    rows: Sequence[Row],
    gates: Sequence[Gate],
    out: Path | None,
    started: Row,
    series: Row | None = None,
) -> int:
    """Print what was measured and write it.

    Args:
        rows: The table.
        gates: What was asked for.
        out: JSON file; None writes none.
        started: `machine` of before the measurement, with the load it had then.
        series: What only the file has, by name.

    Returns:
        An exit status: 1 where a gate does not hold.
    """
    print_table(rows)
    print()
    for gate in gates:
        verdict = "holds" if gate.holds else "DOES NOT HOLD"
        print(f"{gate.what}: {_shown(gate.figure)}, asked {gate.asked}: {verdict}")
    if out is not None:
        report = {**started, "rows": [*rows], "gates": [asdict(gate) for gate in gates]}
        report = _without_nan(report | dict(series or {}))
        out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return int(not all(gate.holds for gate in gates))


def _without_nan(value: Any) -> Any:
    """Return null for what is no number, which JSON has no word for."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, Mapping):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return value


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
