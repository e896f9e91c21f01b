"""Sampler benchmark: microseconds a step of each sampler, the presets, and all at once.

    python -m lab.benchmarks.model.samplers --json docs/results/samplers.json

A step is `ArSampler.step` on logits of the model's shape with a history of 300 frames, to which it
is rewound between rounds. Rounds are interleaved, so that slowdowns of the machine affect all
alike; figures are medians over rounds. With `transformers` installed, its processors run on the
same parameters and batch. Takes about two minutes on an idle machine.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab.benchmarks.harness.report import print_table
from samplers.ar.sampler import ArSampler
from samplers.ar.state import RowInput, SlotTable
from samplers.knobs.features import is_on
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import PRESETS
from samplers.knobs.resolve import resolve

VOCAB_SIZE, STOP, HISTORY = 1025, 1024, 300

CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "categorical": {},
    "temperature": {"temperature": 0.8},
    "top_k": {"top_k": 50},
    "top_p": {"top_p": 0.9},
    "min_p": {"min_p": 0.05},
    "p_less": {"p_less": True},
    "typical_p": {"typical_p": 0.9},
    "top_n_sigma": {"top_n_sigma": 1.5},
    "epsilon_cutoff": {"epsilon_cutoff": 0.001},
    "eta_cutoff": {"eta_cutoff": 0.001},
    "xtc": {"xtc_probability": 0.5},
    "dynatemp": {"min_temperature": 0.5},
    "repetition_penalty": {"repetition_penalty": 1.1},
    "frequency_penalty": {"frequency_penalty": 0.2},
    "dry": {"dry_multiplier": 0.8, "dry_range": HISTORY},
    "no_repeat_ngram": {"no_repeat_ngram_size": 12},
    "length_penalty": {"length_penalty": 0.2},
    "mirostat 1": {"mirostat_mode": 1},
    "mirostat 2": {"mirostat_mode": 2},
    "ras": {"ras": True},
    "entropix": {"entropix": True},
    "all on": {
        "temperature": 0.8, "min_temperature": 0.5, "top_k": 100, "top_p": 0.95, "min_p": 0.01,
        "typical_p": 0.98, "top_n_sigma": 2.5, "epsilon_cutoff": 1e-4, "eta_cutoff": 1e-4,
        "xtc_probability": 0.2, "repetition_penalty": 1.1, "repetition_penalty_decay": -0.3,
        "frequency_penalty": 0.1, "presence_penalty": 0.1, "dry_multiplier": 0.8,
        "no_repeat_ngram_size": 30, "length_penalty": 0.1, "exponential_decay_factor": 1.001,
        "exponential_decay_start": 500, "min_frames": 400, "ban_tokens": [3], "ras": True,
    },
}  # fmt: skip

_ONCE = {"repetition_penalty_window": 0, "repetition_penalty_one_time": True}
SAME_IN_TRANSFORMERS: dict[str, dict[str, Any]] = {
    "temperature, top_k, top_p": {"temperature": 0.8, "top_k": 50, "top_p": 0.9},
    "repetition_penalty, temperature, top_k, top_p, min_p": {
        "repetition_penalty": 1.1, **_ONCE, "temperature": 0.8, "top_k": 50, "top_p": 0.9,
        "min_p": 0.02,
    },
    "all that it has": {
        "repetition_penalty": 1.1, **_ONCE, "no_repeat_ngram_size": 30, "temperature": 0.8,
        "top_k": 100, "top_p": 0.95, "min_p": 0.01, "typical_p": 0.98, "epsilon_cutoff": 1e-4,
        "eta_cutoff": 1e-4,
    },
}  # fmt: skip

TARGETS_US = {"preset default": 150.0, "all on": 1500.0}
"""Targets of a step of one row, in microseconds."""


class SamplerStep:
    """A step of `ArSampler` that can be repeated."""

    def __init__(self, params: SamplingParams, rows: int) -> None:
        self._sampler = ArSampler(
            SlotTable(rows, frames=10 * HISTORY, vocab_size=VOCAB_SIZE), stop_token=STOP
        )
        for seed in range(rows):
            self._sampler.join([seed], RowInput(params, seed, 10 * HISTORY))
        self._logits, self._rows = model_logits(rows), rows
        self._attention = torch.ones(rows, 4) if is_on("entropix", params) else None
        for _ in range(HISTORY):
            self()

    def __call__(self) -> None:
        """Sample a code a row."""
        self._sampler.step(self._logits, attention=self._attention)

    def reset(self) -> None:
        """Rewind the history to `HISTORY` codes."""
        for row in range(self._rows):
            self._sampler.rewind(row, HISTORY)


def model_logits(rows: int) -> Tensor:
    """Return random logits ``[rows, V]`` with an improbable stop token."""
    logits = 3 * torch.randn(rows, VOCAB_SIZE, generator=torch.Generator().manual_seed(0))
    logits[:, STOP] = -30.0
    return logits


def their_step(knobs: dict[str, Any], rows: int) -> Callable[[], object]:
    """Return a step of the same processors of `transformers` and its `generate`'s sample."""
    from transformers import generation  # type: ignore[import-not-found,unused-ignore]

    makers = {
        "repetition_penalty": "RepetitionPenaltyLogitsProcessor",
        "no_repeat_ngram_size": "NoRepeatNGramLogitsProcessor",
        "temperature": "TemperatureLogitsWarper",
        "top_k": "TopKLogitsWarper",
        "top_p": "TopPLogitsWarper",
        "min_p": "MinPLogitsWarper",
        "typical_p": "TypicalLogitsWarper",
        "epsilon_cutoff": "EpsilonLogitsWarper",
        "eta_cutoff": "EtaLogitsWarper",
    }
    chain = [getattr(generation, makers[n])(knobs[n]) for n in makers if n in knobs]
    logits = model_logits(rows)
    history = torch.randint(0, STOP, (rows, HISTORY), generator=torch.Generator().manual_seed(0))

    @torch.inference_mode()
    def step() -> Tensor:
        scores = logits
        for processor in chain:
            scores = processor(history, scores)
        return torch.multinomial(scores.softmax(-1), 1)

    return step


def measure(
    steps: dict[str, Callable[[], object]], *, rounds: int, repeats: int
) -> dict[str, float]:
    """Return the median microseconds of each step over interleaved rounds."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            if isinstance(step, SamplerStep):
                step.reset()
            step()
            started = time.perf_counter()
            for _ in range(repeats):
                step()
            taken[name].append((time.perf_counter() - started) / repeats * 1e6)
    return {name: round(statistics.median(times), 1) for name, times in taken.items()}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = {name: resolve(SamplingParams(**knobs, seed=0)) for name, knobs in CASES.items()}
    for name in PRESETS:
        cases[f"preset {name}"] = resolve(SamplingParams(preset=name, seed=0))
    results: dict[str, dict[str, float]] = {}
    for rows in options.rows:
        steps: dict[str, Callable[[], object]] = {
            name: SamplerStep(params, rows) for name, params in cases.items()
        }
        for name, knobs in SAME_IN_TRANSFORMERS.items():
            steps[f"ours: {name}"] = SamplerStep(SamplingParams(**knobs), rows)
            try:
                steps[f"transformers: {name}"] = their_step(knobs, rows)
            except ImportError:
                print("transformers is not installed: no ratio")
        figures = measure(steps, rounds=options.rounds, repeats=options.repeats)
        for name, figure in figures.items():
            results.setdefault(name, {})[str(rows)] = figure
    report(results, options.rows)
    if options.json:
        options.json.write_text(
            json.dumps(
                {
                    "unit": "us/step",
                    "vocab_size": VOCAB_SIZE,
                    "history": HISTORY,
                    "machine": platform.processor() or platform.machine(),
                    "torch": torch.__version__,
                    "targets_at_one_row": TARGETS_US,
                    "threads": 1,
                    "figures": results,
                },
                indent=1,
            )
            + "\n"
        )


def report(results: dict[str, dict[str, float]], rows: list[int]) -> None:
    """Print the figures as a Markdown table, with ratios to `transformers`."""
    table = []
    for name, figures in results.items():
        table.append({"us/step": name} | {f"B = {n}": f"{figures[str(n)]}" for n in rows})
        ours = results.get(name.replace("transformers: ", "ours: "))
        if name.startswith("transformers: ") and ours:
            ratios = {f"B = {n}": f"{figures[str(n)] / ours[str(n)]:.2f}x" for n in rows}
            table.append({"us/step": "... transformers / ours"} | ratios)
    print_table(table)
    for name, target in TARGETS_US.items():
        if figure := results[name].get("1"):
            print(f"{name}: {figure} us at B = 1, {figure / target:.2f} of the target of {target}")


if __name__ == "__main__":
    main()
