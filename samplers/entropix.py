"""Entropix: how unsure a row is, in five states, and what each does to the sampling knobs.

Pure functions. Entropies are in bits, varentropies in bits squared.

Source: xjdr-alt/entropix 9ef54d9 (states and coefficients as its author described them; the two
entropy thresholds that cceeb84 exchanged are in their first places).
"""

import math
from dataclasses import dataclass, fields
from enum import IntEnum

import torch
from torch import Tensor


class State(IntEnum):
    """Low or high entropy, low or high varentropy; the first that fits."""

    LELV = 0
    HELV = 1
    LEHV = 2
    HEHV = 3
    ADAPTIVE = 4


@dataclass(frozen=True)
class Thresholds:
    """Where low ends and high begins. Those of a text model: measure them for each model."""

    low_entropy: float = 0.1
    low_varentropy: float = 0.1
    helv_entropy: float = 3.0
    lehv_entropy: float = 5.0
    hehv_entropy: float = 5.0
    high_varentropy: float = 5.0


@dataclass(frozen=True)
class Attention:
    """Statistics of the attention of the last layer's last query, each ``(B, 1)`` float32.

    Attributes:
        entropy: Mean over the heads of each head's entropy, bits.
        varentropy: Variance over the heads (population) of the heads' entropies.
        agreement: Mean distance of a head's weights from the heads' mean; 0 is agreement.
        strength: Mean size of the scores before the softmax.
    """

    entropy: Tensor
    varentropy: Tensor
    agreement: Tensor
    strength: Tensor


@dataclass(frozen=True)
class Knobs:
    """The sampling knobs that a state moves, each ``(B, 1)``; top_k is int64."""

    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    min_p: Tensor


def moments(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Entropy and varentropy of ``(B, V)`` logits in bits, each ``(B, 1)``; -inf counts nothing."""
    # A code whose probability underflows must count 0 * something finite.
    surprise = logits.log_softmax(-1).clamp(min=-1e3) / -math.log(2)
    probs = logits.softmax(-1)
    entropy = (probs * surprise).sum(-1, keepdim=True)
    return entropy, (probs * (surprise - entropy).square()).sum(-1, keepdim=True)


def attention(scores: Tensor, valid: Tensor | None = None) -> Attention:
    """Measure the attention of the last query.

    Args:
        scores: ``(B, H, T)`` float32, before the softmax, of the last layer.
        valid: ``(B, T)`` bool, keys that exist; all by default.

    Returns:
        The four statistics; keys that do not exist count nothing.
    """
    heads = scores.shape[1]
    exists = torch.ones_like(scores[:, 0], dtype=torch.bool) if valid is None else valid
    count = exists.sum(-1, keepdim=True)
    masked = scores.masked_fill(~exists[:, None], -torch.inf)
    weights = masked.softmax(-1)
    entropies = moments(masked)[0][..., 0]
    distance = (weights - weights.mean(1, keepdim=True)).abs()
    size = scores.abs().masked_fill(~exists[:, None], 0.0)
    return Attention(
        entropies.mean(1, keepdim=True),
        entropies.var(1, correction=0, keepdim=True),
        distance.sum((1, 2))[:, None] / (heads * count),
        size.sum((1, 2))[:, None] / (heads * count),
    )


def state(entropy: Tensor, varentropy: Tensor, thresholds: Thresholds) -> Tensor:
    """The state of each row, ``(B, 1)`` int64 of `State`, from `moments`."""
    calm = varentropy < thresholds.low_varentropy
    wild = varentropy > thresholds.high_varentropy
    found = torch.full_like(entropy, State.ADAPTIVE, dtype=torch.int64)
    # Written last to first, so that the first that fits wins.
    found = found.masked_fill((entropy > thresholds.hehv_entropy) & wild, State.HEHV)
    found = found.masked_fill((entropy < thresholds.lehv_entropy) & wild, State.LEHV)
    found = found.masked_fill((entropy > thresholds.helv_entropy) & calm, State.HELV)
    return found.masked_fill((entropy < thresholds.low_entropy) & calm, State.LELV)


def adjust(
    states: Tensor, entropy: Tensor, varentropy: Tensor, heads: Attention, knobs: Knobs
) -> Knobs:
    """Move each row's knobs as its state says.

    Args:
        states: ``(B, 1)`` int64, of `state`.
        entropy: ``(B, 1)`` float32 bits.
        varentropy: ``(B, 1)`` float32 bits squared.
        heads: Of `attention`.
        knobs: The row's own knobs.

    Returns:
        Knobs to sample with; a `LELV` row has temperature 0 (greedy).
    """
    t, p, k, m = knobs.temperature, knobs.top_p, knobs.top_k.to(torch.float32), knobs.min_p
    helv = Knobs((t * (1.3 + 0.2 * heads.entropy)).clamp(max=1.5), p, knobs.top_k, m)
    lehv_k = (k * (1 + 0.5 * (1 - heads.agreement))).floor().clamp(min=5).to(torch.int64)
    lehv = Knobs((t * (1.2 + 0.3 * heads.strength)).clamp(max=1.5), p, lehv_k, m)
    hehv = Knobs(
        (t * (2 + 0.5 * heads.varentropy)).clamp(min=2),
        (p - 0.2 * heads.entropy).clamp(min=0.5), knobs.top_k, m,
    )  # fmt: skip
    heat = 1 + 0.3 * (entropy + varentropy) + 0.2 * (heads.entropy + heads.varentropy)
    adaptive_k = (k * (1 + 0.3 * heads.strength - 0.2 * heads.agreement)).round().clamp(1, 100)
    adaptive = Knobs(
        t * (heat - 0.2 * heads.agreement),
        (p * (1 + 0.1 * heads.varentropy)).clamp(0.1, 1),
        adaptive_k.to(torch.int64),
        (m * (1 - 0.5 * (entropy + varentropy))).clamp(0.01, 0.5),
    )
    lelv = Knobs(torch.zeros_like(t), p, knobs.top_k, m)
    chosen = [lelv, helv, lehv, hehv, adaptive]
    return Knobs(
        *(
            torch.stack([getattr(option, field.name) for option in chosen]).gather(0, states[None])[
                0
            ]
            for field in fields(Knobs)
        )
    )
