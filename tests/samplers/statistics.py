"""p-values without scipy, and Holm's correction."""

import math
from collections.abc import Mapping, Sequence

import torch
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
    return chi_square_tail(((observed - wanted) ** 2 / wanted).sum().item(), len(wanted) - 1)


def independence(left: Tensor, right: Tensor, size: int) -> float:
    """p-value of the table of pairs ``(left_i, right_i)`` under independence."""
    table = torch.bincount(left * size + right, minlength=size * size).reshape(size, size).double()
    wanted = table.sum(1, keepdim=True) * table.sum(0, keepdim=True) / table.sum()
    assert wanted.min() >= 5
    return chi_square_tail(((table - wanted) ** 2 / wanted).sum().item(), (size - 1) ** 2)


def chi_square_tail(statistic: float, freedom: int) -> float:
    """Chance of a chi-square of so many degrees of freedom above the statistic."""
    halves = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(halves[0], halves[1]))


def kolmogorov_smirnov(numbers: Tensor) -> float:
    """p-value of numbers under the uniform distribution on (0, 1), by Kolmogorov's series."""
    ordered = numbers.double().flatten().sort().values
    count = len(ordered)
    steps = torch.arange(count + 1, dtype=torch.float64) / count
    distance = max((steps[1:] - ordered).max().item(), (ordered - steps[:-1]).max().item())
    x = distance * math.sqrt(count)
    terms = [(-1.0) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 100)]
    return min(1.0, 2 * sum(terms))


def rejected(p_values: Mapping[str, float], alpha: float = ALPHA) -> Sequence[str]:
    """Which hypotheses fall, by Holm's step-down rule over all of them."""
    falling = []
    for place, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p > alpha / (len(p_values) - place):
            break
        falling.append(f"{name} (p = {p:.2g})")
    return falling
