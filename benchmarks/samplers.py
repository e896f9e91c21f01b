"""Microseconds a sampling step costs: each sampler alone, the presets, and everything at once.

    python -m benchmarks.samplers --json docs/results/samplers.json

A step is what the engine pays a frame: `ArSampler.step` on logits of the model's shape with a
history of 300 frames. Rounds are interleaved, so that a machine that slows down slows all; the
figure is the median over the rounds. With `transformers` installed, its processors run on the same
params and batch, and the ratio is given. Run it on an idle machine.
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

from samplers.chain import ArSampler
from samplers.params import SamplingParams, resolve
from samplers.presets import PRESETS

VOCAB_SIZE, STOP, HISTORY = 1025, 1024, 300

CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "categorical": {},
    "temperature": {"temperature": 0.8},
    "top_k": {"top_k": 50},
    "top_p": {"top_p": 0.9},
    "min_p": {"min_p": 0.05},
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
    "all on": {
        "temperature": 0.8, "min_temperature": 0.5, "top_k": 100, "top_p": 0.95, "min_p": 0.01,
        "typical_p": 0.98, "top_n_sigma": 2.5, "epsilon_cutoff": 1e-4, "eta_cutoff": 1e-4,
        "xtc_probability": 0.2, "repetition_penalty": 1.1, "repetition_penalty_decay": -0.3,
        "frequency_penalty": 0.1, "presence_penalty": 0.1, "dry_multiplier": 0.8,
        "no_repeat_ngram_size": 30, "length_penalty": 0.1, "exponential_decay_factor": 1.001,
        "exponential_decay_start": 500, "min_frames": 400, "ban_tokens": [3], "ras": True,
    },
}  # fmt: skip

SAME_IN_TRANSFORMERS: dict[str, dict[str, Any]] = {
    "temperature, top_k, top_p": {"temperature": 0.8, "top_k": 50, "top_p": 0.9},
    "repetition_penalty, temperature, top_k, top_p, min_p": {
        "repetition_penalty": 1.1, "repetition_penalty_window": 0,
        "repetition_penalty_one_time": True, "temperature": 0.8, "top_k": 50, "top_p": 0.9,
        "min_p": 0.02,
    },
}  # fmt: skip


def our_step(params: SamplingParams, rows: int) -> Callable[[], object]:
    """A step of ours that can be repeated: the history stays near `HISTORY` frames."""
    sampler = ArSampler(
        [params] * rows, range(rows), stop_token=STOP, vocab_size=VOCAB_SIZE, max_frames=10_000
    )
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(rows, VOCAB_SIZE, generator=generator)
    logits[:, STOP] = -30.0
    for _ in range(HISTORY):
        sampler.step(logits)
    return lambda: sampler.step(logits)


def their_step(knobs: dict[str, Any], rows: int) -> Callable[[], object]:
    """The same processors of `transformers`, and the draw that its `generate` makes."""
    from transformers import generation  # type: ignore[import-not-found,unused-ignore]

    makers = {
        "repetition_penalty": "RepetitionPenaltyLogitsProcessor",
        "temperature": "TemperatureLogitsWarper",
        "top_k": "TopKLogitsWarper",
        "top_p": "TopPLogitsWarper",
        "min_p": "MinPLogitsWarper",
    }
    chain = [getattr(generation, makers[n])(knobs[n]) for n in makers if n in knobs]
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(rows, VOCAB_SIZE, generator=generator)
    history = torch.randint(0, STOP, (rows, HISTORY), generator=generator)

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
    """Median microseconds of each step over interleaved rounds."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step()
            started = time.perf_counter()
            for _ in range(repeats):
                step()
            taken[name].append((time.perf_counter() - started) / repeats * 1e6)
    return {name: round(statistics.median(times), 1) for name, times in taken.items()}


def main() -> None:
    """Measure, print a table, and write JSON if asked."""
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
        steps = {name: our_step(params, rows) for name, params in cases.items()}
        for name, knobs in SAME_IN_TRANSFORMERS.items():
            steps[f"ours: {name}"] = our_step(SamplingParams(**knobs), rows)
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
                    "threads": 1,
                    "figures": results,
                },
                indent=1,
            )
            + "\n"
        )


def report(results: dict[str, dict[str, float]], rows: list[int]) -> None:
    """Print the figures as a Markdown table, with the ratios where there are any."""
    print("| us/step | " + " | ".join(f"B = {count}" for count in rows) + " |")
    print("| --- |" + " --- |" * len(rows))
    for name, figures in results.items():
        print(f"| {name} | " + " | ".join(f"{figures[str(count)]}" for count in rows) + " |")
        ours = results.get(name.replace("transformers: ", "ours: "))
        if name.startswith("transformers: ") and ours:
            ratios = [f"{figures[str(n)] / ours[str(n)]:.2f}x" for n in rows]
            print("| ... transformers / ours | " + " | ".join(ratios) + " |")


if __name__ == "__main__":
    main()
