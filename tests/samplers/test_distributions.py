"""What is drawn has the stated distribution, and draws do not know of one another.

Noise is a hash, so every test here is deterministic: it passes or fails for ever. Sample sizes are
those at which a distribution that is wrong by 2 % of its mass is found with 99 % power.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from samplers import filters
from samplers.chain import ArSampler
from samplers.draw import Draw, Stage, categorical, stream_key, uniform
from samplers.params import SamplingParams
from samplers.rows import Rows
from samplers.scores import Scores
from samplers.terminal import Terminal
from samplers.trace import Trace
from tests.samplers.harness import Case, load, newest_first, run, stack
from tests.samplers.statistics import (
    chi_square,
    independence,
    kolmogorov_smirnov,
    rejected,
    two_samples,
)

DRAWS, CHUNK = 200_000, 20_000


def _keys() -> Iterator[Tensor]:
    """Streams of noise, one a draw, in chunks that fit the cache."""
    for start in range(0, DRAWS, CHUNK):
        seeds = range(start, start + CHUNK)
        yield torch.tensor([[stream_key(seed, 0, Stage.AR)] for seed in seeds])


KEYS = list(_keys())


def _counts(logits: Tensor) -> Tensor:
    """How often each code is drawn from a ``(1, V)`` row."""
    width = logits.shape[1]
    return sum(
        (
            torch.bincount(
                categorical(logits.expand(CHUNK, width), uniform(keys, width)), minlength=width
            )
            for keys in KEYS
        ),
        torch.zeros(width, dtype=torch.int64),
    )


def _chain_p_values(cases: list[Case]) -> dict[str, float]:
    p_values = {}
    for case in cases:
        knobs: dict[str, Any] = dict(case["params"])
        stop = knobs.pop("stop_token")
        params = SamplingParams(**knobs, protect_stop=False)
        final = run(
            case["order"], [params], stack([case["logits"]]), [case["history"]], stop_token=stop
        )
        probs = stack([case["expected"]["probs"]], 0.0)[0]
        p_values[case["id"]] = chi_square(_counts(final), probs)
    return p_values


def test_golden_chains_are_drawn_with_their_probabilities(golden: Path) -> None:
    cases = [case for case in load(golden, "chain") if case["order_name"] == "canonical"]
    assert rejected(_chain_p_values(cases)) == []


@pytest.mark.slow
def test_golden_chains_of_every_order_are_drawn_with_their_probabilities(golden: Path) -> None:
    assert rejected(_chain_p_values(load(golden, "chain"))) == []


def test_a_wrong_distribution_would_be_found() -> None:
    logits = torch.randn(1, 64, generator=torch.Generator().manual_seed(1))
    probs = logits.softmax(-1)[0]
    counts = _counts(logits)
    assert chi_square(counts, probs) > 0.001
    wrong = probs.clone()
    wrong[:32] *= 1 + 0.02 / probs[:32].sum()
    wrong[32:] *= 1 - 0.02 / probs[32:].sum()
    assert chi_square(counts, wrong) < 1e-6


def test_golden_xtc_acts_with_its_chance(golden: Path) -> None:
    p_values = {}
    for case in load(golden, "xtc")[:2]:
        logits, threshold = stack([case["logits"]]), case["params"]["xtc_threshold"]
        for chance in (0.25, 0.5):
            counts = torch.zeros(logits.shape[1], dtype=torch.int64)
            for keys in KEYS:
                acts = uniform(keys, 1, draw=Draw.XTC) < chance
                many = logits.expand(CHUNK, -1)
                after = filters.xtc(many, torch.tensor([[threshold]]), acts)
                codes = categorical(after, uniform(keys, logits.shape[1]))
                counts += torch.bincount(codes, minlength=logits.shape[1])
            acted = stack([case["expected"]["probs"]], 0.0)[0]
            mixture = chance * acted + (1 - chance) * logits.softmax(-1)[0]
            p_values[f"{case['id']} {chance}"] = chi_square(counts, mixture)
    assert rejected(p_values) == []


def _ras_counts(case: Case, *, mask_first: bool) -> Tensor:
    knobs, logits = case["params"], stack([case["logits"]])
    params = SamplingParams(
        ras=True, ras_top_p=knobs["top_p"], ras_top_k=knobs["top_k"],
        ras_window=knobs["win_size"], ras_tau=knobs["tau_r"], ras_mask_first=mask_first,
    )  # fmt: skip
    terminal = Terminal(Rows([params], logits.shape[1], None, torch.device("cpu")), 1)
    recent = newest_first([case["history"]]).expand(CHUNK, -1)
    counts = torch.zeros(logits.shape[1], dtype=torch.int64)
    for keys in KEYS:
        nothing = torch.zeros_like(keys)
        many = logits.expand(CHUNK, -1)
        drawn = terminal.draw(Scores(many, nothing, recent, recent, recent, keys, nothing))
        counts += torch.bincount(drawn.codes, minlength=logits.shape[1])
    return counts


def test_golden_repetition_aware_sampling_has_its_two_output_distributions(golden: Path) -> None:
    p_values = {}
    for case in load(golden, "ras")[:2]:
        for field, mask_first in (("probs_paper", False), ("probs_mask_first_pick", True)):
            counts = _ras_counts(case, mask_first=mask_first)
            probs = stack([case["expected"][field]], 0.0)[0]
            p_values[f"{case['id']} {field}"] = chi_square(counts, probs)
    assert rejected(p_values) == []


def test_the_race_agrees_with_torch_and_with_the_inverse_of_the_distribution() -> None:
    logits = 2 * torch.randn(1, 40, generator=torch.Generator().manual_seed(4))
    probs = logits.softmax(-1)[0]
    ours = _counts(logits)
    generator = torch.Generator().manual_seed(5)
    torchs = torch.bincount(
        torch.multinomial(probs, DRAWS, replacement=True, generator=generator), minlength=40
    )
    numbers = torch.cat([uniform(keys, 1, draw=Draw.SECOND)[:, 0] for keys in KEYS])
    inverse = torch.bincount(
        torch.searchsorted(probs.cumsum(0), numbers).clamp(max=39), minlength=40
    )
    assert rejected({
        "ours, torch": two_samples(ours, torchs),
        "ours, inverse": two_samples(ours, inverse),
        "torch, inverse": two_samples(torchs, inverse),
    }) == []  # fmt: skip


def test_a_race_puts_the_second_code_where_drawing_without_replacement_does() -> None:
    probs = torch.tensor([0.4, 0.3, 0.2, 0.1])
    pairs = torch.zeros(16, dtype=torch.int64)
    for keys in KEYS[:5]:
        order = (probs / -torch.log1p(-uniform(keys, 4))).topk(2).indices
        pairs += torch.bincount(order[:, 0] * 4 + order[:, 1], minlength=16)
    wanted = probs[:, None] * probs / (1 - probs[:, None])
    assert chi_square(pairs, wanted.fill_diagonal_(0).flatten()) > 0.001


def test_noise_is_uniform_along_every_axis_of_its_place() -> None:
    key = torch.tensor([[stream_key(7, 0, Stage.AR)]])
    counts = torch.arange(100_000)[:, None]
    few = {
        "entries": uniform(key, 100_000),
        "steps": uniform(key, 1, step=counts),
        "positions": uniform(key, 1, position=counts),
        "attempts": uniform(key, 1, attempt=counts),
        "seeds": uniform(torch.cat(KEYS[:5]), 1),
        "neighbouring utterances": torch.cat([
            uniform(torch.tensor([[stream_key(7, u, Stage.AR)]]), 100) for u in range(1000)
        ]),
    }
    assert rejected({name: kolmogorov_smirnov(noise) for name, noise in few.items()}) == []


def test_noise_has_no_memory_along_any_axis() -> None:
    key = torch.tensor([[stream_key(11, 0, Stage.AR)]])
    counts = torch.arange(100_001)[:, None]
    rows = {
        "entries": uniform(key, 100_001)[0],
        "steps": uniform(key, 1, step=counts)[:, 0],
        "positions": uniform(key, 1, position=counts)[:, 0],
        "seeds": uniform(torch.cat(KEYS)[:100_001], 1)[:, 0],
        "draws": torch.stack(
            [uniform(key, 1, step=counts[:50_000], draw=draw)[:, 0] for draw in (0, 1)], 1
        ).flatten(),
    }
    p_values = {}
    for name, noise in rows.items():
        centred = noise.double() - 0.5
        correlation = 12 * (centred[1:] * centred[:-1]).mean().item()
        p_values[f"{name}, lag 1"] = math.erfc(abs(correlation) * math.sqrt(len(noise) / 2))
        cells = (noise * 16).to(torch.int64)
        p_values[f"{name}, pairs"] = independence(cells[:-1:2], cells[1::2], 16)
    assert rejected(p_values) == []


def test_draws_of_one_row_and_of_two_rows_are_independent() -> None:
    size, steps = 8, 20_000
    row = torch.randn(1, size, generator=torch.Generator().manual_seed(2)) / 2
    places = torch.arange(steps)[:, None]
    drawn = [
        categorical(
            row.expand(steps, size),
            uniform(torch.tensor([[stream_key(seed, 0, Stage.AR)]]), size, step=places),
        )
        for seed in (0, 1)
    ]
    assert rejected({
        "one row": independence(drawn[0][:-1], drawn[0][1:], size),
        "two rows": independence(drawn[0], drawn[1], size),
    }) == []  # fmt: skip


def test_no_two_of_ten_thousand_places_share_their_noise() -> None:
    keys = torch.tensor([[stream_key(seed, 0, Stage.AR)] for seed in range(100)])
    rows = torch.cat([uniform(keys, 4, step=step) for step in range(100)])
    assert len(rows.unique(dim=0)) == 10_000


def test_a_tiny_temperature_is_greedy_and_a_huge_one_uniform() -> None:
    row = torch.linspace(0, 3, 31)[torch.randperm(31, generator=torch.Generator().manual_seed(3))]
    cold = run(["temperature"], [SamplingParams(temperature=1e-3)], row[None])
    hot = run(["temperature"], [SamplingParams(temperature=1e6)], row[None])
    keys, many = torch.cat(KEYS[:5]), (100_000, 31)
    assert (categorical(cold.expand(many), uniform(keys, 31)) == row.argmax()).all()
    counts = torch.bincount(categorical(hot.expand(many), uniform(keys, 31)), minlength=31)
    assert chi_square(counts, torch.full((31,), 1 / 31)) > 0.001


@pytest.mark.parametrize("logit", [-2.0, 2.0])
@pytest.mark.parametrize("mode", ["signed", "additive"])
def test_a_repeated_code_becomes_less_likely_with_the_factor_for_either_sign(
    logit: float, mode: Any
) -> None:
    factors = (0.5, 0.9, 1.0, 1.1, 2.0)
    params = [
        SamplingParams(repetition_penalty=factor, repetition_penalty_mode=mode)
        for factor in factors
    ]
    logits = torch.tensor([[logit, 0.3, -0.4]]).repeat(len(factors), 1)
    after = run(["repetition_penalty"], params, logits, [[0]] * len(factors))
    chances = after.softmax(-1)[:, 0].tolist()
    assert chances == sorted(chances, reverse=True)
    assert len(set(chances)) == len(factors)


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("zipf", [0.9, 1.3])
def test_mirostat_keeps_the_mean_surprise_near_its_target(mode: Any, zipf: float) -> None:
    steps, size, tau = 2000, 1025, 4.0  # above the surprise of the best code
    params = SamplingParams(mirostat_mode=mode, mirostat_tau=tau)
    sampler = ArSampler([params], [3], stop_token=size - 1, vocab_size=size, max_frames=steps)
    logits = -zipf * torch.arange(1, size + 1).log()
    logits[-1] = -torch.inf
    trace = Trace()
    for _ in range(steps):
        sampler.step(logits[None], trace)
    surprises = [-entry["logprob"] / math.log(2) for entry in trace.row(0)]
    assert sum(surprises) / steps == pytest.approx(tau, abs=0.1)
