"""What a code of level 0 costs the AR thread of a CPU; codes a second of its processor time.

    python -m lab.benchmarks.model.ar_thread --against ../valle-before --out ar_thread.json
    python -m lab.benchmarks.model.ar_thread --model with_a_null_head   # in one row, or in two

Streams of the built-in voice with int8 weights and its own preset, each followed by another as it
ends: prefixes, steps, sampling, backtracking, blocks of frames, but not what schedules jobs. Time
is the thread's on a processor, so that other programs disturb little. Two checkouts are measured by
turns, and their codes must be equal; or two models, whose codes are their own.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from lab.benchmarks.harness.report import (
    TableRow,
    Target,
    argument_parser,
    conclude,
    machine,
    target,
)
from lab.benchmarks.harness.texts import texts

ROOT: Final = Path(__file__).resolve().parents[3]
STREAMS: Final = (1, 8)
SENTENCES: Final = 2  # of a text
BUILTIN: Final = "weights"  # of a checkout
WORKER: Final = "--worker"
MOST_GROWTH: Final = 1.1
"""Of what a code costs, against another checkout: more is a regression."""
ONE_ROW: Final = {1: 1.0, 8: 1.4}
"""Times the codes a second that guidance in one row must give by streams, against two."""


@dataclass(frozen=True)
class Measured:
    """Some streams for some steps: codes, seconds of processor time, and a hash of the codes."""

    codes: int
    thread_s: float
    sha256: str

    @property
    def rate(self) -> float:
        """Codes a second."""
        return self.codes / self.thread_s


def spoken(synthesizer: Any, streams: int, steps: int) -> dict[str, Any]:
    """Speak streams for some steps, in this thread; return the fields of `Measured`."""
    from app.engine.core import SpeechJob
    from app.engine.messages import FramesReady, UtteranceDone
    from samplers.knobs.params import SamplingParams

    told = sha256()
    codes = 0

    def heard(message: object) -> None:
        nonlocal codes
        if isinstance(message, FramesReady | UtteranceDone):
            codes += len(message.codes)
            told.update(message.codes.numpy().tobytes())

    source = iter(enumerate(texts(streams + steps, sentences_each=SENTENCES)))

    def begun() -> Any:
        number, text = next(source)
        job = SpeechJob(
            id=str(number), text=text, params=SamplingParams(preset="auto", seed=number)
        )
        return batch.begin(synthesizer.planner.plan(job), heard)

    batch = synthesizer.ar.called_batch(2 * streams)
    jobs = [begun() for _ in range(streams)]
    thread_s = 0.0
    for _ in range(steps):
        for place, job in enumerate(jobs):
            if job.over:
                batch.end(job)
                jobs[place] = begun()
        began_s = time.thread_time()
        batch.step(jobs)
        thread_s += time.thread_time() - began_s
    batch.close()
    return {"codes": codes, "thread_s": thread_s, "sha256": told.hexdigest()}


def work() -> None:
    """Answer each line of streams and steps with a line of what was measured."""
    from app.engine.backend.synthesizer import Synthesizer
    from app.settings import Settings

    model = sys.argv[2]
    synthesizer = Synthesizer.load(Settings(device="cpu", weights="int8", threads=1, model=model))
    for line in sys.stdin:
        streams, steps = map(int, line.split())
        print(json.dumps(spoken(synthesizer, streams, steps)), flush=True)


class Worker:
    """A process that measures one checkout."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def measured(self, streams: int, steps: int) -> Measured:
        """Return what streams cost there."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(f"{streams} {steps}\n")
        asked.flush()
        return Measured(**json.loads(answers.readline()))


@dataclass(frozen=True)
class System:
    """What is measured: a checkout, and the model that it speaks with."""

    checkout: Path
    model: str


@contextmanager
def worker(system: System) -> Iterator[Worker]:
    """Measure a system in a process of its own, which runs this file."""
    path = {"PYTHONPATH": str(system.checkout.resolve()), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-P", __file__, WORKER, system.model],
        cwd=system.checkout, env=os.environ | path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    with process:
        try:
            yield Worker(process)
        finally:
            process.terminate()


def by_turns(
    systems: Sequence[System], rounds: int, steps: int
) -> dict[tuple[System, int], list[Measured]]:
    """Measure each number of streams in each system by turns, after a round that warms."""
    found: dict[tuple[System, int], list[Measured]] = {}
    with ExitStack() as stack:
        workers = {system: stack.enter_context(worker(system)) for system in systems}
        for turn in range(rounds + 1):
            for streams in STREAMS:
                for system, one in workers.items():
                    once = one.measured(streams, steps)
                    if turn:
                        found.setdefault((system, streams), []).append(once)
    return found


def judged(
    own: Sequence[Measured], before: Sequence[Measured], streams: int, *, same_model: bool = True
) -> list[Target]:
    """Return what rounds must hold before those of another checkout, or of another model."""
    pairs = list(zip(own, before, strict=True))
    faster = statistics.median(one.rate / other.rate for one, other in pairs)
    if not same_model:
        text = f"{streams} streams: times the codes a second of two rows"
        return [target(text, faster, ">=", ONE_ROW[streams])]
    differ = sum(one.sha256 != other.sha256 for one, other in pairs)
    name = f"{streams} streams"
    return [
        target(f"{name}: times the other's codes a second", faster, ">=", 1 / MOST_GROWTH),
        target(f"{name}: rounds of other codes", differ, "==", 0),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argument_parser(__doc__)
    parser.add_argument("--against", type=Path, default=ROOT, help="another checkout")
    parser.add_argument("--model", type=Path, help="speak with it, against the built-in voice")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600, help="of each number of streams")
    args, started = parser.parse_args(arguments), machine()
    model = BUILTIN if args.model is None else str(args.model.resolve())
    own = System(ROOT, model)
    systems = [*dict.fromkeys([System(args.against, BUILTIN), own])]
    found = by_turns(systems, args.rounds, args.steps)
    rows: list[TableRow] = [
        {
            "streams": streams,
            "checkout": str(system.checkout),
            "model": system.model,
            "codes/s": statistics.median(one.rate for one in each),
            "min": min(one.rate for one in each),
            "max": max(one.rate for one in each),
        }
        for (system, streams), each in found.items()
    ]
    targets: list[Target] = []
    for streams in STREAMS if len(systems) > 1 else ():
        before, rounds = (found[system, streams] for system in systems)
        targets += judged(rounds, before, streams, same_model=args.model is None)
    return conclude(rows, targets, args.out, started)


if __name__ == "__main__":
    if WORKER in sys.argv:
        work()
    else:
        raise SystemExit(main())
