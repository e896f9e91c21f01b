"""What is drawn has the stated distribution, and draws do not know of one another.

The p-values of all of them, 20 seconds on an idle core:

    scripts/test tests/samplers/test_distributions.py -m slow --log-cli-level=INFO
"""

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from samplers.ar.trace import Trace
from samplers.knobs.params import SamplingParams
from samplers.ops import filters
from samplers.ops.draw import Stage, categorical, stream_key, uniform
from tests.samplers.distributions import (
    QUICK,
    THOROUGH,
    PValues,
    count_draws,
    streams,
)
from tests.samplers.reference.harness import (
    FILTERS,
    entries_of,
    load,
    make_sampler,
    run,
    stack,
)
from tests.samplers.statistics import chi_square, rejected

pytestmark = pytest.mark.slow

log = logging.getLogger(__name__)


@pytest.mark.parametrize("family", QUICK, ids=lambda family: family.__name__)
def test_what_is_drawn_has_the_stated_distribution(golden: Path, family: Any) -> None:
    assert rejected(family(golden)) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_distributions_hold_together_under_holms_correction(golden: Path) -> None:
    p_values: PValues = {}
    for family in THOROUGH:
        found = {f"{family.__name__}: {name}": p for name, p in family(golden).items()}
        for name, p in found.items():
            log.info("p = %-8.3g %s", p, name)
        p_values |= found
    log.info("%d p-values, the least %.3g", len(p_values), min(p_values.values()))
    assert rejected(p_values) == []


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_million_draws_never_leave_what_a_filter_kept(golden: Path, dtype: torch.dtype) -> None:
    rows = {}
    for family, step in FILTERS.items():
        for case in load(golden, family)[2:4]:
            logits = filters.sanitise(stack([case["logits"]]).to(dtype))
            rows[case["id"]] = run([step], [SamplingParams(**case["params"])], logits)
    counts = count_draws(list(rows.values()), 1_000_000)
    for (name, row), count in zip(rows.items(), counts, strict=True):
        assert count[row[0] == -torch.inf].sum() == 0, name
        assert count.sum() == 1_000_000


def test_a_wrong_distribution_would_be_found() -> None:
    logits = torch.randn(1, 64, generator=torch.Generator().manual_seed(1))
    probs = logits.softmax(-1)[0]
    (counts,) = count_draws([logits])
    assert chi_square(counts, probs) > 0.001
    wrong = probs.clone()
    wrong[:32] *= 1 + 0.02 / probs[:32].sum()
    wrong[32:] *= 1 - 0.02 / probs[32:].sum()
    assert chi_square(counts, wrong) < 1e-6


def test_no_two_of_ten_thousand_places_share_their_noise() -> None:
    keys = torch.tensor([[stream_key(seed, 0, Stage.AR)] for seed in range(100)])
    rows = torch.cat([uniform(keys, 4, step=step) for step in range(100)])
    assert len(rows.unique(dim=0)) == 10_000


def test_a_tiny_temperature_is_greedy_and_a_huge_one_uniform() -> None:
    row = torch.linspace(0, 3, 31)[torch.randperm(31, generator=torch.Generator().manual_seed(3))]
    cold = run(["temperature"], [SamplingParams(temperature=1e-3)], row[None])
    hot = run(["temperature"], [SamplingParams(temperature=1e6)], row[None])
    keys, many = torch.cat(list(streams(100_000))), (100_000, 31)
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
    sampler = make_sampler([params], [3], stop_token=size - 1, vocab_size=size, max_frames=steps)
    logits = -zipf * torch.arange(1, size + 1).log()
    logits[-1] = -torch.inf
    trace = Trace()
    for _ in range(steps):
        sampler.step(logits[None], trace)
    surprises = [-entry["logprob"] / math.log(2) for entry in entries_of(trace, 0)]
    assert sum(surprises) / steps == pytest.approx(tau, abs=0.1)
