"""Truncation filters: which codes may be sampled at all.

Most keep every logit that reaches a *floor* ``(B, 1)``, so they are functions from a row to its
floor, and several share one descending sort: after `keep_from` the sorted row is still sorted. Each
keeps at least one code.

Sources: top-p, Holtzman et al. 2019, arXiv:1904.09751. Min-p, Nguyen et al. 2024, arXiv:2407.01082.
Epsilon and eta, Hewitt et al. 2022, arXiv:2210.15191. Top-n-sigma, Tang et al. 2024,
arXiv:2411.07641 (the unbiased deviation, as the authors' code has). Typical, Meister et al. 2022,
arXiv:2202.00666. P-less, Tan et al. 2025, arXiv:2509.23234. XTC, koboldcpp and
text-generation-webui, by p-e-w.
"""

import numpy as np
import torch
from torch import Tensor


def descending(logits: Tensor) -> Tensor:
    """Return each row of ``(B, V)`` sorted, largest first, as the floors below take it."""
    if logits.device.type != "cpu":
        return logits.sort(dim=-1, descending=True).values
    # NumPy sorts with vector instructions, an eighth of torch's time at 32 rows; ascending only.
    ordered = np.negative(logits.numpy())
    ordered.sort(axis=-1)
    return torch.from_numpy(np.negative(ordered, out=ordered))


def keep_from(logits: Tensor, floor: Tensor) -> Tensor:
    """Exclude logits ``(B, V)`` below the row's ``(B, 1)`` floor; ties with it stay."""
    return logits.masked_fill(logits < floor, -torch.inf)


def top_k_floor(ordered: Tensor, k: Tensor) -> Tensor:
    """Return the k-th largest logit (k int64; V keeps all); ties stay too, as in `transformers`."""
    return ordered.gather(-1, (k - 1).clamp(0, ordered.shape[-1] - 1))


def top_p_floor(ordered: Tensor, p: Tensor) -> Tensor:
    """Return the last logit of the shortest prefix that reaches p; infinity (not 1) keeps all."""
    mass = torch.softmax(ordered, -1)
    before = mass.cumsum(-1).sub_(mass)
    kept = (before < p).sum(-1, keepdim=True)
    return ordered.gather(-1, (kept - 1).clamp_(min=0))


def min_p_floor(best: Tensor, p: Tensor) -> Tensor:
    """Return the logit of a code p times as likely as the best: 0 keeps all, 1 or more the best."""
    return best + p.log().clamp_(max=0)


def p_less_floor(logits: Tensor, acts: Tensor) -> Tensor:
    """Return the logit of a code of probability sum p^2, the chance that two samples are equal.

    No probability is below that of the best, so one code stays. ``acts`` ``(B, 1)``: 0 keeps all.
    """
    floor = (2 * logits).logsumexp(-1, keepdim=True) - logits.logsumexp(-1, keepdim=True)
    best = logits.amax(-1, keepdim=True)
    return torch.where(acts > 0, torch.minimum(floor, best), -torch.inf)


def epsilon_floor(logits: Tensor, epsilon: Tensor) -> Tensor:
    """Return the logit of a code of probability epsilon, or the best if none is that likely."""
    floor = logits.logsumexp(-1, keepdim=True).add_(epsilon.log())
    return torch.minimum(floor, logits.amax(-1, keepdim=True))


def eta_floor(logits: Tensor, eta: Tensor) -> Tensor:
    """Return the logit at min(eta, sqrt(eta) e^-H), H in nats, or the best if none is as likely."""
    cut = torch.minimum(eta, eta.sqrt() * (-entropy(logits)).exp())
    return epsilon_floor(logits, cut)


def top_n_sigma_floor(logits: Tensor, n: Tensor) -> Tensor:
    """Return the best logit less n standard deviations of the codes that are not excluded."""
    best = logits.amax(-1, keepdim=True)
    alive = logits > -torch.inf
    count = alive.sum(-1, keepdim=True)
    below = torch.where(alive, logits - best, 0.0)
    mean = below.sum(-1, keepdim=True) / count
    squares = torch.where(alive, below - mean, 0.0).square().sum(-1, keepdim=True)
    sigma = (squares / (count - 1).clamp(min=1)).sqrt()
    # 0 * infinity: a row without spread that has the filter off.
    return best - (n * sigma).nan_to_num_(nan=torch.inf, posinf=torch.inf)


def typical(logits: Tensor, p: Tensor, protected: Tensor | None = None) -> Tensor:
    """Keep the codes whose surprise is nearest to the entropy until their probability reaches p.

    It may exclude the likeliest code, but no ``protected`` ``(B, V)`` one; infinity (not 1) keeps
    all. Ties stay, as in `transformers`.
    """
    log_probs = logits.log_softmax(-1)
    distance = (log_probs + entropy(logits)).abs_()
    nearest, order = distance.sort(dim=-1, stable=True)
    mass = log_probs.exp().gather(-1, order)
    before = mass.cumsum(-1).sub_(mass)
    kept = (before < p).sum(-1, keepdim=True)
    farthest = nearest.gather(-1, (kept - 1).clamp_(min=0))
    removed = distance > farthest
    if protected is not None:
        removed &= ~protected
    return logits.masked_fill(removed, -torch.inf)


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of ``softmax(logits)`` in nats, ``(B, 1)``; excluded codes add nothing."""
    log_probs = logits.log_softmax(-1)
    return -(log_probs.exp() * log_probs.clamp(min=-1e3)).sum(-1, keepdim=True)


def xtc(logits: Tensor, threshold: Tensor, acts: Tensor, protected: Tensor | None = None) -> Tensor:
    """Exclude top choices: of the codes with at least this probability keep only the least likely.

    Where ``acts`` ``(B, 1)`` is False, or a ``protected`` ``(B, V)`` code would go, the row stays.
    """
    probs = logits.softmax(-1)
    choices = probs >= threshold
    least = probs.masked_fill(~choices, torch.inf).amin(-1, keepdim=True)
    removed = choices & (probs > least) & acts
    if protected is not None:
        removed &= ~(removed & protected).any(-1, keepdim=True)
    return logits.masked_fill(removed, -torch.inf)
