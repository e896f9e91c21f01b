"""p-values, and Holm's correction."""

from collections.abc import Mapping, Sequence

import torch
from scipy.stats import chi2, chi2_contingency, kstest
from torch import Tensor

ALPHA = 1e-3


def chi_square(counts: Tensor, probs: Tensor) -> float:
    """p-value of counts under exact probabilities; cells that expect less than 5 are pooled.

    A count in a cell of probability 0 is a certain failure.
    """
    if counts[probs == 0].sum() > 0:
        return 0.0
    expected = probs.double() * counts.sum()
    rare = expected < 5
    observed = torch.cat((counts[~rare].double(), counts[rare].sum()[None].double()))
    wanted = torch.cat((expected[~rare], expected[rare].sum()[None]))
    if wanted[-1] < 5:  # too little to be a cell of its own
        smallest = int(wanted[:-1].argmin())
        observed[smallest] += observed[-1]
        wanted[smallest] += wanted[-1]
        observed, wanted = observed[:-1], wanted[:-1]
    if len(wanted) < 2:
        return 1.0
    return float(chi2.sf(((observed - wanted) ** 2 / wanted).sum(), len(wanted) - 1))


def independence(left: Tensor, right: Tensor, size: int) -> float:
    """p-value of the table of pairs ``(left_i, right_i)`` under independence."""
    table = torch.bincount(left * size + right, minlength=size * size).reshape(size, size)
    found = chi2_contingency(table, correction=False)
    assert found.expected_freq.min() >= 5
    return float(found.pvalue)


def kolmogorov_smirnov(numbers: Tensor) -> float:
    """p-value of numbers under the uniform distribution on (0, 1)."""
    return float(kstest(numbers.double().flatten(), "uniform").pvalue)


def rejected(p_values: Mapping[str, float], alpha: float = ALPHA) -> Sequence[str]:
    """Which sequences fall, by Holm's step-down rule over all of them."""
    falling = []
    for place, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p > alpha / (len(p_values) - place):
            break
        falling.append(f"{name} (p = {p:.2g})")
    return falling
