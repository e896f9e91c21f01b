"""All GPU tests and benchmarks in one command, in under nine minutes.

    python -m lab.benchmarks.card.ticket --out card.json             # on a machine with a GPU
    python -m lab.benchmarks.card.ticket --device cpu --tiny         # tries the ticket itself

Each part is a process with a time limit: a part that fails, hangs or lacks a package is reported
with the end of its output, and the next one starts. What is timed runs alone; the parts before it,
which only compare, side by side, as many as half of the processors. Wheels of missing packages are
first installed from ``.whl/``, if that folder exists (`scripts/card-wheels` fills it).
"""

import argparse
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

from lab.benchmarks.harness.report import TableRow, Target, machine, print_table

ROOT = Path(__file__).resolve().parents[3]
WHEELS = ROOT / ".whl"
MINUTES = 8.8
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Of parts on a CPU or side by side: threads that share a core with other programs wait for each
other in loops, and a part that takes seconds takes minutes."""

_TAIL = 30  # lines of a part that failed
_DEATHS = 100  # looks at whether a killed part is gone

Measured = tuple[Sequence[TableRow], Sequence[Target]]


class TicketPart(NamedTuple):
    """One part of the ticket.

    Attributes:
        name: Its name.
        needs: Modules without which it is skipped.
        limit_s: Time limit in seconds.
        function: Module and function of `lab.benchmarks.card`, called with the device and ``tiny``.
        command: Arguments of Python, run instead of a function.
        under: Command that runs Python; skipped where it is not. The model is then the small one.
        alone: Whether nothing else may run meanwhile.
    """

    name: str
    needs: Sequence[str]
    limit_s: float
    function: str = ""
    command: Sequence[str] = ()
    under: Sequence[str] = ()
    alone: bool = True


SANITIZER = ("compute-sanitizer", "--error-exitcode", "1", "--tool")
PYTEST = (
    "-m", "pytest", "-q", "-o", "addopts=", "-o", "filterwarnings=default",
    "-p", "no:cacheprovider",
    "--continue-on-collection-errors",
)  # fmt: skip
GPU_TESTS = (
    "--noconftest", "-m", "gpu",
    "tests/models/stack/test_gpu.py", "tests/app/engine/nar/test_gpu.py",
)  # fmt: skip
KERNEL_TESTS = (
    "--confcutdir=tests/samplers/cuda", "-m", "not slow",
    "tests/models/cuda/kernels/test_check.py", "tests/samplers/cuda/test_kernel.py",
)  # fmt: skip
SERVICE = ("pydantic_settings", "fastapi", "uvicorn", "httpx2", "phonemizer")
PARTS: Sequence[TicketPart] = (
    TicketPart("environment", (), 20, "environment.describe", alone=False),
    TicketPart(
        "kernels' tests", ("pytest", "triton"), 120, command=(*PYTEST, *KERNEL_TESTS), alone=False
    ),
    TicketPart("kernels", ("pydantic", "triton"), 60, "kernels.compared", alone=False),
    TicketPart("exact", ("pydantic",), 90, "ar.exactness", alone=False),
    TicketPart("requests", SERVICE, 120, "service.mixed_requests", alone=False),
    TicketPart(
        "gpu tests", ("pytest", "pydantic"), 120, command=(*PYTEST, *GPU_TESTS), alone=False
    ),
    TicketPart(
        "races", ("triton",), 120, "kernels.compared", under=(*SANITIZER, "racecheck"), alone=False
    ),
    TicketPart(
        "memory", ("triton",), 120, "kernels.compared", under=(*SANITIZER, "memcheck"), alone=False
    ),
    TicketPart("codes a second", ("pydantic",), 150, "ar.codes_a_second"),
    TicketPart("first sound", SERVICE, 60, "service.first_sound"),
    TicketPart("streams", SERVICE, 110, "service.streams_without_a_gap"),
    TicketPart("profile of a step", ("pydantic",), 30, "profile.step"),
    TicketPart("profile of a chunk", ("pydantic",), 30, "profile.chunk"),
)
"""The parts, most important first; parts that do not fit into the time are skipped."""


def measure(name: str, device_type: str, *, tiny: bool) -> Measured:
    """Run a part in this process; only its own module is imported, with what that needs.

    Args:
        name: Name of a part that has no command.
        device_type: ``cuda`` or ``cpu``.
        tiny: Use a small model, to try the ticket.
    """
    import torch

    from gpu.library import set_up

    set_up()  # as the service does; cuDNN would plan attention anew for every length
    (function,) = [part.function for part in PARTS if part.name == name]
    module, _, attribute = function.rpartition(".")
    part: Callable[..., Measured] = getattr(
        import_module(f"lab.benchmarks.card.{module}"), attribute
    )
    return part(torch.device(device_type), tiny=tiny)


def run(part: TicketPart, device: str, *, tiny: bool, left_s: float) -> dict[str, Any]:
    """Run a part in a new process.

    Returns:
        ``status`` (ok, failed, timed out, skipped), ``seconds`` and, if any, ``rows``, ``targets``
        and ``output``: the last lines of a part that did not succeed.
    """
    missing = [name for name in part.needs if not _has(name)]
    missing += [name for name in part.under[:1] if shutil.which(name) is None]
    if missing:
        return {"status": "skipped", "seconds": 0.0, "output": f"needs {', '.join(missing)}"}
    if left_s < 5:
        return {"status": "skipped", "seconds": 0.0, "output": "no time is left"}
    began_s = monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "part.json"
        own = ["-m", "lab.benchmarks.card.ticket", "--device", device, "--only", part.name]
        own += ["--out", str(out), *(["--tiny"] if tiny or part.under else [])]
        told = Path(folder) / "output"
        with told.open("wb") as output_file:
            running = subprocess.Popen(
                [*part.under, sys.executable, *(part.command or own)],
                cwd=ROOT,
                stdout=output_file,
                stderr=subprocess.STDOUT,
                env=os.environ
                | {"PYTHONUNBUFFERED": "1"}
                | (ONE_THREAD if device == "cpu" or not part.alone else {}),
                start_new_session=True,
            )
            try:
                status = "failed" if running.wait(min(part.limit_s, left_s)) else "ok"
            except subprocess.TimeoutExpired:
                status = "timed out"
            finally:  # a server that a part began keeps the memory of the next
                with suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
                    running.wait()
                    for _ in range(_DEATHS):  # each has its memory until it is gone
                        os.killpg(running.pid, 0)
                        sleep(0.05)
                running.wait()
        output = told.read_text("utf-8", errors="replace")
        found: dict[str, Any] = json.loads(out.read_text("utf-8")) if out.is_file() else {}
    found |= {"status": status, "seconds": monotonic() - began_s}
    if status != "ok" or part.command:
        found["output"] = "\n".join(output.splitlines()[-_TAIL:])
    return found


def install_wheels(folder: Path, target: Path) -> str:
    """Install the wheels of a folder into ``target``, added to the path; return pip's errors."""
    if not folder.is_dir():
        return ""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    wheels = [str(wheel) for wheel in sorted(folder.glob("*.whl"))]
    done = subprocess.run(
        [*command, "--no-compile", "--upgrade", "--target", str(target), *wheels],
        capture_output=True,
        text=True,
        check=False,
    )
    os.environ["PYTHONPATH"] = f"{target}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    sys.path.insert(0, str(target))
    return done.stderr if done.returncode else ""


def work_through(device: str, *, tiny: bool, minutes: float) -> dict[str, Any]:
    """Run all parts within a time limit, printing each when it ends."""
    ends_s, parts = monotonic() + 60 * minutes, dict[str, Any]()
    report = machine() | {"parts": parts}

    def work_on(part: TicketPart) -> tuple[str, dict[str, Any]]:
        return part.name, run(part, device, tiny=tiny, left_s=ends_s - monotonic())

    with tempfile.TemporaryDirectory() as packages:
        if errors := install_wheels(WHEELS, Path(packages)):
            print(f"the wheels cannot be installed:\n{errors}")
        with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as together:
            beside = [together.submit(work_on, part) for part in PARTS if not part.alone]
            for ended in as_completed(beside):
                _show(parts, *ended.result())
        for part in PARTS:
            if part.alone:
                _show(parts, *work_on(part))
    return report


def _show(parts: dict[str, Any], name: str, found: dict[str, Any]) -> None:
    """Keep and print what a part found."""
    parts[name] = found
    print(f"\n## {name}: {found['status']}, {found['seconds']:.0f} s\n")
    if found.get("rows"):
        print_table(found["rows"])
    for target in found.get("targets", ()):
        verdict = "holds" if target["holds"] else "DOES NOT HOLD"
        print(f"{target['what']}: {target['figure']:g}, asked {target['asked']}: {verdict}")
    if "output" in found:
        print(found["output"])
    sys.stdout.flush()


def _has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is 1 if a part failed or timed out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small model, to try the ticket")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all of it")
    parser.add_argument("--only", choices=[part.name for part in PARTS], help="this part, here")
    parser.add_argument("--out", type=Path, help="JSON file")
    args = parser.parse_args(arguments)
    if args.only:
        rows, targets = measure(args.only, args.device, tiny=args.tiny)
        report: dict[str, Any] = {
            "rows": [*rows],
            "targets": [asdict(target) for target in targets],
        }
    else:
        report = work_through(args.device, tiny=args.tiny, minutes=args.minutes)
    if args.out is not None:
        args.out.write_text(json.dumps(report, indent=1, default=str) + "\n", "utf-8")
    ended = [found["status"] for found in report.get("parts", {}).values()]
    return int(any(status in {"failed", "timed out"} for status in ended))


if __name__ == "__main__":
    raise SystemExit(main())
