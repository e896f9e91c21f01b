"""Entropix: five states by entropy and varentropy, and how each adjusts the sampling knobs.

Entropies are in bits, varentropies in bits squared. A *setting* is the value of a knob
`entropix_NAME`, ``(B, 1)``, by its NAME.

Source: xjdr-alt/entropix 9ef54d9 (states and coefficients as its author described them; the two
entropy thresholds that cceeb84 exchanged are in their first places).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Self

import torch
from torch import Tensor

EntropixSettings = Mapping[str, Tensor]

HOTTEST = 1e30
"""The highest temperature; above it products would not be finite in float32."""


class State(IntEnum):
    """Low or high entropy, low or high varentropy; the first that fits. `OFF`: no entropix on."""

    OFF = -1
    LELV = 0
    HELV = 1
    LEHV = 2
    HEHV = 3
    ADAPTIVE = 4


@dataclass(frozen=True)
class AttentionStatistics:
    """Statistics of the last layer's attention from the last position, each ``(B,)`` float32.

    Attributes:
        entropy: Mean over the heads of each head's entropy, bits.
        varentropy: Variance over the heads (population) of the heads' entropies, bits squared.
        agreement: Mean distance of a head's weights from the heads' mean; 0 is agreement.
        strength: Mean size of the scores before the softmax.
    """

    entropy: Tensor
    varentropy: Tensor
    agreement: Tensor
    strength: Tensor

    def take(self, rows: Tensor) -> "AttentionStatistics":
        """Return those of some rows, by an ``(n,)`` int64 index."""
        return AttentionStatistics(
            *(getattr(self, field.name).index_select(0, rows) for field in fields(self))
        )


@dataclass(frozen=True)
class SamplingTensors:
    """The sampling knobs that a state moves, each ``(B, 1)`` float32; top_k is int64."""

    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    min_p: Tensor


@dataclass(frozen=True)
class Decision:
    """What entropix decided for each row, each ``(B, 1)``.

    Attributes:
        state: Int64 of `State`.
        resample: Bool: the code drawn is excluded, and another drawn.
        candidates: Int64: this many codes are drawn, and the likeliest is taken.
        paused: Bool: only codes of silence were kept.
        branched: Bool: the row branches, unless it ends here.
    """

    state: Tensor
    resample: Tensor
    candidates: Tensor
    paused: Tensor
    branched: Tensor

    @classmethod
    def none(cls, rows: int, device: torch.device) -> Self:
        """Return that of rows without entropix."""
        state = torch.full((rows, 1), int(State.OFF), device=device)
        never = torch.zeros(3, rows, 1, dtype=torch.bool, device=device)
        resample, paused, branched = never.unbind()
        return cls(state, resample, torch.ones_like(state), paused, branched)

    def take(self, rows: Tensor) -> "Decision":
        """Return that of some rows, by an ``(n,)`` int64 index."""
        return Decision(
            *(getattr(self, field.name).index_select(0, rows) for field in fields(self))
        )


def moments(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return entropy and varentropy of ``(B, V)`` logits, each ``(B, 1)``; -inf adds nothing."""
    # A code whose probability underflows must count 0 * something finite.
    surprise = logits.log_softmax(-1).clamp(min=-1e3) / -math.log(2)
    probs = logits.softmax(-1)
    entropy = (probs * surprise).sum(-1, keepdim=True)
    return entropy, (probs * (surprise - entropy).square()).sum(-1, keepdim=True)


def state(entropy: Tensor, varentropy: Tensor, settings: EntropixSettings) -> Tensor:
    """Return the state of each row, ``(B, 1)`` int64 of `State`, from its `moments`."""
    calm = varentropy < settings["low_varentropy"]
    wild = varentropy > settings["high_varentropy"]
    found = torch.full_like(entropy, State.ADAPTIVE, dtype=torch.int64)
    # Written last to first, so that the first that fits wins.
    found = found.masked_fill((entropy > settings["hehv_entropy"]) & wild, State.HEHV)
    found = found.masked_fill((entropy < settings["lehv_entropy"]) & wild, State.LEHV)
    found = found.masked_fill((entropy > settings["helv_entropy"]) & calm, State.HELV)
    return found.masked_fill((entropy < settings["low_entropy"]) & calm, State.LELV)


def adjust(
    states: Tensor,
    entropy: Tensor,
    varentropy: Tensor,
    attention: AttentionStatistics,
    knobs: SamplingTensors,
    settings: EntropixSettings,
) -> SamplingTensors:
    """Return each row's knobs as its state adjusts them.

    Args:
        states: ``(B, 1)`` int64, of `state`.
        entropy: ``(B, 1)`` float32 bits.
        varentropy: ``(B, 1)`` float32 bits squared.
        attention: Statistics of the model's attention.
        knobs: The rows' own values; top_k is V where it is off.
        settings: The thresholds and coefficients.

    Returns:
        Values to sample with; a `LELV` row has temperature 0 (greedy). Temperatures are finite.
    """
    heads = _columns(attention)
    options = (
        SamplingTensors(torch.zeros_like(knobs.temperature), knobs.top_p, knobs.top_k, knobs.min_p),
        _helv(heads, knobs, settings),
        _lehv(heads, knobs, settings),
        _hehv(heads, knobs, settings),
        _adaptive(entropy + varentropy, heads, knobs, settings),
    )
    chosen = {
        field.name: torch.cat([getattr(option, field.name) for option in options], 1).gather(
            1, states.clamp(min=0)
        )
        for field in fields(SamplingTensors)
    }
    chosen["temperature"] = chosen["temperature"].clamp(0, HOTTEST)
    return SamplingTensors(**chosen)


def _columns(attention: AttentionStatistics) -> AttentionStatistics:
    """Return the statistics as ``(B, 1)``, with NaN as 0 and values within [0, 1e6]."""
    return AttentionStatistics(
        *(
            getattr(attention, field.name).nan_to_num(nan=0.0).clamp(0, 1e6)[:, None]
            for field in fields(AttentionStatistics)
        )
    )


def _helv(
    heads: AttentionStatistics, knobs: SamplingTensors, settings: EntropixSettings
) -> SamplingTensors:
    factor = settings["helv_temperature"] + settings["helv_attention_entropy"] * heads.entropy
    temperature = torch.minimum(knobs.temperature * factor, settings["helv_temperature_ceiling"])
    return SamplingTensors(temperature, knobs.top_p, knobs.top_k, knobs.min_p)


def _lehv(
    heads: AttentionStatistics, knobs: SamplingTensors, settings: EntropixSettings
) -> SamplingTensors:
    factor = settings["lehv_temperature"] + settings["lehv_strength"] * heads.strength
    temperature = torch.minimum(knobs.temperature * factor, settings["lehv_temperature_ceiling"])
    wider = 1 + settings["lehv_top_k_agreement"] * (1 - heads.agreement)
    top_k = (knobs.top_k * wider).floor().to(torch.int64)
    return SamplingTensors(
        temperature, knobs.top_p, torch.maximum(top_k, settings["lehv_top_k_floor"]), knobs.min_p
    )


def _hehv(
    heads: AttentionStatistics, knobs: SamplingTensors, settings: EntropixSettings
) -> SamplingTensors:
    hotter = settings["hehv_attention_varentropy"] * heads.varentropy
    temperature = knobs.temperature * (settings["hehv_temperature"] + hotter)
    top_p = knobs.top_p - settings["hehv_top_p_attention_entropy"] * heads.entropy
    return SamplingTensors(
        torch.maximum(temperature, settings["hehv_temperature_floor"]),
        torch.maximum(top_p, settings["hehv_top_p_floor"]),
        knobs.top_k,
        knobs.min_p,
    )


def _adaptive(
    unsureness: Tensor,
    heads: AttentionStatistics,
    knobs: SamplingTensors,
    settings: EntropixSettings,
) -> SamplingTensors:
    """``unsureness`` is entropy and varentropy together, ``(B, 1)``."""
    heat = (
        1
        + settings["adaptive_entropy"] * unsureness
        + settings["adaptive_attention_entropy"] * (heads.entropy + heads.varentropy)
        - settings["adaptive_agreement"] * heads.agreement
    )
    top_p = knobs.top_p * (1 + settings["adaptive_top_p"] * heads.varentropy)
    wider = (
        1
        + settings["adaptive_top_k_strength"] * heads.strength
        - settings["adaptive_top_k_agreement"] * heads.agreement
    )
    min_p = knobs.min_p * (1 - settings["adaptive_min_p"] * unsureness)
    return SamplingTensors(
        knobs.temperature * heat,
        _clip(top_p, "top_p", settings),
        _clip((knobs.top_k * wider).round().to(torch.int64), "top_k", settings),
        _clip(min_p, "min_p", settings),
    )


def _clip(moved: Tensor, knob: str, settings: EntropixSettings) -> Tensor:
    low, high = settings[f"adaptive_{knob}_floor"], settings[f"adaptive_{knob}_ceiling"]
    return moved.clamp(low, high)
