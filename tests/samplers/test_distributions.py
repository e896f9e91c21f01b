"""What is sampled has the stated distribution, and samples do not know of one another.

What a filter leaves has exact probabilities (`ops/test_goldens.py`), and what is gone is never
sampled (`ops/test_draw.py`); here are samples from rows as whole chains leave them.

The p-values of all of them, 20 seconds on an idle core:

    scripts/test tests/samplers/test_distributions.py -m slow --log-cli-level=INFO
"""

import logging
from pathlib import Path

import pytest
import torch

from samplers.ops.sample import Stage, stream_key, uniform
from tests.samplers.distributions import FAMILIES, PValues, count_samples
from tests.samplers.statistics import chi_square, rejected

pytestmark = pytest.mark.slow

log = logging.getLogger(__name__)


@pytest.mark.timeout(900)
def test_all_distributions_hold_together_under_holms_correction(golden: Path) -> None:
    p_values: PValues = {}
    for family in FAMILIES:
        found = {f"{family.__name__}: {name}": p for name, p in family(golden).items()}
        for name, p in found.items():
            log.info("p = %-8.3g %s", p, name)
        p_values |= found
    log.info("%d p-values, the least %.3g", len(p_values), min(p_values.values()))
    assert rejected(p_values) == []


def test_a_wrong_distribution_would_be_found() -> None:
    logits = torch.randn(1, 64, generator=torch.Generator().manual_seed(1))
    probs = logits.softmax(-1)[0]
    (counts,) = count_samples([logits])
    assert chi_square(counts, probs) > 0.001
    wrong = probs.clone()
    wrong[:32] *= 1 + 0.02 / probs[:32].sum()
    wrong[32:] *= 1 - 0.02 / probs[32:].sum()
    assert chi_square(counts, wrong) < 1e-6


def test_no_two_of_ten_thousand_places_share_their_noise() -> None:
    keys = torch.tensor([[stream_key(seed, 0, Stage.AR)] for seed in range(100)])
    rows = torch.cat([uniform(keys, 4, step=step) for step in range(100)])
    assert len(rows.unique(dim=0)) == 10_000
