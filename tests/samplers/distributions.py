"""What is sampled, family by family, as p-values under the exact probabilities.

Noise is a hash, so every p-value is fixed for ever, and no test is run again with another seed.
200,000 samples find a distribution that is wrong by 2 % of its mass with 99 % power.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from samplers.knobs.params import SamplingParams
from samplers.ops import stuck as backtrack
from samplers.ops.sample import NoiseStream, Stage, categorical, stream_key, uniform
from samplers.processors.processor import Scores
from samplers.processors.sample import TokenSampler
from samplers.processors.truncation import Xtc
from tests.samplers.reference.harness import (
    Case,
    chain_params,
    load,
    make_batch,
    newest_first,
    run,
    stack,
)
from tests.samplers.statistics import (
    chi_square,
    independence,
    kolmogorov_smirnov,
)

DRAWS, CHUNK = 200_000, 20_000
PValues = dict[str, float]


def streams(draws: int = DRAWS) -> Iterator[Tensor]:
    """Streams of noise, one a sample, ``(CHUNK, 1)`` each: chunks fit the cache."""
    for start in range(0, draws, CHUNK):
        seeds = range(start, start + CHUNK)
        yield torch.tensor([[stream_key(seed, 0, Stage.AR)] for seed in seeds])


def count_samples(rows: Sequence[Tensor], draws: int = DRAWS, **place: int) -> list[Tensor]:
    """How often each code is sampled from each ``(1, V)`` row; all rows see the same noise."""
    widest = max(row.shape[1] for row in rows)
    counts = [torch.zeros(row.shape[1], dtype=torch.int64) for row in rows]
    for keys in streams(draws):
        noise = uniform(keys, widest, **place)
        for row, count in zip(rows, counts, strict=True):
            width = row.shape[1]
            codes = categorical(row.expand(CHUNK, width), noise[:, :width])
            count += torch.bincount(codes, minlength=width)
    return counts


def _compare(rows: Mapping[str, tuple[Tensor, Tensor]], **place: int) -> PValues:
    """p-values of sampling from rows of logits whose probabilities are given."""
    counts = count_samples([logits for logits, _ in rows.values()], **place)
    return {
        name: chi_square(count, probs)
        for (name, (_, probs)), count in zip(rows.items(), counts, strict=True)
    }


def _probs(case: Case, field: str = "probs") -> Tensor:
    return stack([case["expected"][field]], 0.0)[0]


def chains(golden: Path) -> PValues:
    """The golden chains of all orders."""
    rows = {}
    for case in load(golden, "chain"):
        params, stop = chain_params(case)
        final = run(
            case["order"], [params], stack([case["logits"]]), [case["history"]], stop_token=stop
        )
        rows[case["id"]] = final, _probs(case)
    return _compare(rows)


def _xtc_counts(logits: Tensor, params: SamplingParams) -> tuple[Tensor, int]:
    """How often each code is sampled after XTC, and how often that took codes away."""
    step = Xtc(make_batch([params], logits.shape[1]))
    counts, acted = torch.zeros(logits.shape[1], dtype=torch.int64), 0
    for keys in streams():
        scores = _scores(logits, [], keys)
        step(scores)
        acted += int((scores.logits == -torch.inf).any(-1).sum())
        codes = categorical(scores.logits, scores.noise(NoiseStream.CODE, logits.shape[1]))
        counts += torch.bincount(codes, minlength=logits.shape[1])
    return counts, acted


def xtc(golden: Path) -> PValues:
    """XTC at two chances: q XTC(p) + (1 - q) p, and how often it acts."""
    p_values = {}
    for case in load(golden, "xtc")[:2]:
        logits, threshold = stack([case["logits"]]), case["params"]["xtc_threshold"]
        for chance in (0.25, 0.5):
            params = SamplingParams(xtc_probability=chance, xtc_threshold=threshold)
            counts, acted = _xtc_counts(logits, params)
            mixture = chance * _probs(case) + (1 - chance) * logits.softmax(-1)[0]
            p_values[f"{case['id']} {chance}"] = chi_square(counts, mixture)
            p_values[f"{case['id']} {chance}, coin"] = chi_square(
                torch.tensor([acted, DRAWS - acted]), torch.tensor([chance, 1 - chance])
            )
    return p_values


def _scores(logits: Tensor, history: list[int], keys: Tensor) -> Scores:
    """One ``(1, V)`` row and its history as many rows, each with its own noise."""
    nothing, recent = torch.zeros_like(keys), newest_first([history]).expand(len(keys), -1)
    return Scores(
        logits.expand(len(keys), -1), nothing, recent, recent, recent, keys, attempts=nothing
    )


def _ras_counts(case: Case, *, mask_first: bool) -> Tensor:
    knobs, logits = case["params"], stack([case["logits"]])
    params = SamplingParams(
        ras=True, ras_top_p=knobs["top_p"], ras_top_k=knobs["top_k"],
        ras_window=knobs["win_size"], ras_tau=knobs["tau_r"], ras_mask_first=mask_first,
    )  # fmt: skip
    terminal = TokenSampler(make_batch([params], logits.shape[1]))
    counts = torch.zeros(logits.shape[1], dtype=torch.int64)
    for keys in streams():
        sampled = terminal.sample(_scores(logits, case["history"], keys))
        counts += torch.bincount(sampled.codes, minlength=logits.shape[1])
    return counts


def repetition_aware(golden: Path) -> PValues:
    """RAS with either second sample."""
    return {
        f"{case['id']} {field}": chi_square(
            _ras_counts(case, mask_first=mask_first), _probs(case, field)
        )
        for case in load(golden, "ras")[:2]
        for field, mask_first in (("probs_paper", False), ("probs_mask_first_pick", True))
    }


def rewound(golden: Path) -> PValues:
    """Samples at a place that was taken back, from the row in which the old choice is lowered."""
    rows = {}
    for case in load(golden, "antislop_adjust")[:4]:
        knobs = case["params"]
        lowered = backtrack.discourage(
            stack([case["logits"]]),
            torch.tensor([[int(code) for code in knobs["adjustments"]]]),
            torch.tensor([list(knobs["adjustments"].values())]),
            torch.tensor([[knobs["adjustment_strength"]]]),
        )
        wanted = _probs(case, "adjusted_unnormalised")
        rows[case["id"]] = lowered, wanted / wanted.sum()
    return _compare(rows, step=9, attempt=1)


def uniformity(golden: Path) -> PValues:
    """Noise along every axis of its place, by Kolmogorov and Smirnov."""
    key = torch.tensor([[stream_key(7, 0, Stage.AR)]])
    counts = torch.arange(100_000)[:, None]
    few = {
        "entries": uniform(key, 100_000),
        "steps": uniform(key, 1, step=counts),
        "positions": uniform(key, 1, position=counts),
        "attempts": uniform(key, 1, attempt=counts),
        "draws": torch.cat([uniform(key, 1, sample=sample) for sample in range(20_000)]),
        "seeds": torch.cat([uniform(keys, 1) for keys in streams(100_000)]),
        "neighbouring utterances": torch.cat([
            uniform(torch.tensor([[stream_key(7, u, Stage.AR)]]), 100) for u in range(1000)
        ]),
    }
    return {f"{name}, KS": kolmogorov_smirnov(noise) for name, noise in few.items()}


def memory(golden: Path) -> PValues:
    """Correlation of neighbours along every axis, and the table of their pairs."""
    key = torch.tensor([[stream_key(11, 0, Stage.AR)]])
    counts = torch.arange(100_001)[:, None]
    rows = {
        "entries": uniform(key, 100_001)[0],
        "steps": uniform(key, 1, step=counts)[:, 0],
        "positions": uniform(key, 1, position=counts)[:, 0],
        "attempts": uniform(key, 1, attempt=counts)[:, 0],
        "seeds": torch.cat([uniform(keys, 1)[:, 0] for keys in streams()])[:100_001],
        "draws": torch.stack(
            [uniform(key, 1, step=counts[:50_000], sample=sample)[:, 0] for sample in (0, 1)], 1
        ).flatten(),
    }
    p_values = {}
    for name, noise in rows.items():
        centred = noise.double() - 0.5
        correlation = 12 * (centred[1:] * centred[:-1]).mean().item()
        p_values[f"{name}, lag 1"] = math.erfc(abs(correlation) * math.sqrt(len(noise) / 2))
        cells = (noise * 16).to(torch.int64)
        p_values[f"{name}, pairs"] = independence(cells[:-1:2], cells[1::2], 16)
    return p_values


def neighbours(golden: Path) -> PValues:
    """Consecutive samples of one row, and samples of two rows at the same step."""
    size, steps = 8, 20_000
    row = torch.randn(1, size, generator=torch.Generator().manual_seed(2)) / 2
    places = torch.arange(steps)[:, None]
    sampled = [
        categorical(
            row.expand(steps, size),
            uniform(torch.tensor([[stream_key(seed, 0, Stage.AR)]]), size, step=places),
        )
        for seed in (0, 1)
    ]
    return {
        "one row": independence(sampled[0][:-1], sampled[0][1:], size),
        "two rows": independence(sampled[0], sampled[1], size),
    }


FAMILIES: Sequence[Callable[[Path], PValues]] = (
    chains, xtc, repetition_aware, rewound, uniformity, memory, neighbours,
)  # fmt: skip
