"""Entropix: five states by entropy and varentropy, and how each adjusts the sampling knobs.

Entropies are in bits, varentropies in bits squared. A *setting* is the value of a knob
`entropix_NAME`, ``(B, 1)``, by its NAME.

Source: xjdr-alt/entropix 9ef54d9 (states and coefficients as its author described them; the two
entropy thresholds that cceeb84 exchanged are in their first places).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

import torch
from torch import Tensor

from samplers.ops.rows import Rows

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
class Decision(Rows):
    """What entropix decided for each row, each ``(B, 1)``."""

    state: Tensor  # int64 of `State`
    resample: Tensor  # bool: the code sampled is excluded, and another sampled
    candidates: Tensor  # int64: this many codes are sampled, and the likeliest is taken
    paused: Tensor  # bool: only codes of silence were kept
    branched: Tensor  # bool: the row branches, unless it ends here

    @classmethod
    def none(cls, rows: int, device: torch.device) -> Self:
        """Return that of rows without entropix."""
        state = torch.full((rows, 1), int(State.OFF), device=device)
        never = torch.zeros(3, rows, 1, dtype=torch.bool, device=device)
        resample, paused, branched = never.unbind()
        return cls(state, resample, torch.ones_like(state), paused, branched)


def moments(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return entropy and varentropy of ``(B, V)`` logits, each ``(B, 1)``; -inf adds nothing."""
    # A code whose probability underflows must count 0 * something finite.
    surprise = logits.log_softmax(-1).clamp(min=-1e3) / -math.log(2)
    probs = logits.softmax(-1)
    entropy = (probs * surprise).sum(-1, keepdim=True)
    return entropy, (probs * (surprise - entropy).square()).sum(-1, keepdim=True)


def state(entropy: Tensor, varentropy: Tensor, settings: "EntropixSettings") -> Tensor:
    """Return the state of each row, ``(B, 1)`` int64 of `State`, from its `moments`."""
    fits = entropy * settings.signs[0] > settings.thresholds[:, 0]
    fits &= varentropy * settings.signs[1] > settings.thresholds[:, 1]
    return torch.where(fits, settings.states, State.ADAPTIVE).amin(-1, keepdim=True)


def adjust(
    states: Tensor,
    entropy: Tensor,
    varentropy: Tensor,
    attention: Tensor,
    knobs: Tensor,
    settings: "EntropixSettings",
) -> Tensor:
    """Return each row's knobs, ``(B, 4)`` of `KNOBS`, as its state (``(B, 1)`` int64) adjusts them.

    ``attention`` are `ATTENTION`, ``(B, 4)`` float32. A `LELV` row gets temperature 0 (greedy);
    temperatures are finite. In ``knobs`` top_k is V where it is off.
    """
    heads = attention.nan_to_num(nan=0.0).clamp(0, 1e6)
    spread = heads[:, :2]
    agreement = heads[:, 2:3]
    both = spread.sum(-1, keepdim=True)
    unsureness = entropy + varentropy
    readings = torch.cat([heads, 1 - agreement, unsureness, both, agreement, heads[:, :1]], 1)
    every = settings.formulas.expand(len(states), -1, -1, -1)
    formulas = every.gather(
        1, states.clamp(min=0)[..., None, None].expand(-1, 1, *every.shape[2:])
    )[:, 0]
    base, weights, bounds = formulas.tensor_split([1, 1 + readings.shape[1]], -1)
    products = weights * readings[:, None]
    # Of the first products of a knob at most one is not 0, so that their sum is exact.
    factors = base[..., 0] + products[..., :6].sum(-1) + products[..., 6] - products[..., 7]
    moved = knobs * factors - products[..., 8]
    top_k = moved[:, 3:]
    whole = torch.where(states == State.ADAPTIVE, top_k.round(), top_k.floor())
    return torch.cat([moved[:, :3], whole], 1).clamp(*bounds.unbind(-1))


ATTENTION = ("entropy", "varentropy", "agreement", "strength")
"""Statistics of the last layer's attention from the last position: the mean over the heads of their
entropies, in bits; the variance of those (population), bits squared; the mean distance of a head's
weights from the heads' mean, 0 is agreement; and the mean size of the scores before the softmax."""

_READINGS = (
    *ATTENTION, "disagreement", "unsureness", "both", "less_agreement", "less_entropy",
)  # fmt: skip
"""What a formula weighs: attention's entropy, varentropy, agreement and strength; 1 less agreement;
the logits' entropy and varentropy together; attention's together; and what is taken away: agreement
from the factor, attention's entropy from the knob itself."""

_COLUMNS = ("base", *_READINGS, "floor", "ceiling")
KNOBS = ("temperature", "top_p", "min_p", "top_k")
"""The sampling knobs that a state moves."""

_FORMULAS: Mapping[State, Mapping[str, Mapping[str, str]]] = {
    State.LELV: {"temperature": {"base": "", "ceiling": ""}},
    State.HELV: {
        "temperature": {
            "base": "helv_temperature", "entropy": "helv_attention_entropy",
            "ceiling": "helv_temperature_ceiling",
        },
    },
    State.LEHV: {
        "temperature": {
            "base": "lehv_temperature", "strength": "lehv_strength",
            "ceiling": "lehv_temperature_ceiling",
        },
        "top_k": {"disagreement": "lehv_top_k_agreement", "floor": "lehv_top_k_floor"},
    },
    State.HEHV: {
        "temperature": {
            "base": "hehv_temperature", "varentropy": "hehv_attention_varentropy",
            "floor": "hehv_temperature_floor",
        },
        "top_p": {"less_entropy": "hehv_top_p_attention_entropy", "floor": "hehv_top_p_floor"},
    },
    State.ADAPTIVE: {
        "temperature": {
            "unsureness": "adaptive_entropy", "both": "adaptive_attention_entropy",
            "less_agreement": "adaptive_agreement",
        },
        "top_p": {
            "varentropy": "adaptive_top_p", "floor": "adaptive_top_p_floor",
            "ceiling": "adaptive_top_p_ceiling",
        },
        "min_p": {
            "unsureness": "-adaptive_min_p", "floor": "adaptive_min_p_floor",
            "ceiling": "adaptive_min_p_ceiling",
        },
        "top_k": {
            "strength": "adaptive_top_k_strength", "less_agreement": "adaptive_top_k_agreement",
            "floor": "adaptive_top_k_floor", "ceiling": "adaptive_top_k_ceiling",
        },
    },
}  # fmt: skip
"""How a state moves a knob: by a factor of base and weighed readings, within bounds. What is not
named is 1 for the base, 0 for a weight, and no bound; the name of nothing is 0."""


class EntropixSettings:
    """The thresholds and coefficients of B rows; see `_FORMULAS`."""

    def __init__(self, columns: Mapping[str, Tensor]) -> None:
        self._columns = columns
        one = columns["low_entropy"]
        # ``(2, 4)``, which are
        self.signs = torch.tensor([[-1.0, 1, -1, 1], [-1, -1, 1, 1]], device=one.device)
        self.states = torch.arange(4, device=one.device)  # ``(4,)`` int64
        names = (
            "low_entropy", "helv_entropy", "lehv_entropy", "hehv_entropy",
            "low_varentropy", "low_varentropy", "high_varentropy", "high_varentropy",
        )  # fmt: skip
        thresholds = torch.cat([columns[name] for name in names], 1).view(-1, 2, 4)
        # ``(B, 2, 4)``: entropy and varentropy above which a state fits, in the order of the
        # states; both negative where they are to be below
        self.thresholds = thresholds.float() * self.signs
        shape = len(one), len(_FORMULAS), len(KNOBS), len(_COLUMNS)
        self.formulas = torch.zeros(shape, device=one.device)  # ``(B, states, knobs, columns)``
        self.formulas[..., 0] = 1
        self.formulas[..., -1] = torch.inf
        self.formulas[..., -2] = -torch.inf
        self.formulas[:, :, 0, -2] = 0
        self.formulas[:, :, 0, -1] = HOTTEST
        for number, knobs in _FORMULAS.items():
            for knob, terms in knobs.items():
                for column, name in terms.items():
                    self._set(number, KNOBS.index(knob), _COLUMNS.index(column), name)

    def __getitem__(self, name: str) -> Tensor:
        """Return the setting of that name, ``(B, 1)``."""
        return self._columns[name]

    def _set(self, number: State, knob: int, column: int, name: str) -> None:
        """Write one coefficient of all rows."""
        sign, name = (-1, name[1:]) if name.startswith("-") else (1, name)
        value = sign * self[name][:, 0].float() if name else self.formulas.new_zeros(())
        if knob == 0 and column >= len(_COLUMNS) - 2:  # bounds of a temperature are finite
            value = value.clamp(0, HOTTEST)
        self.formulas[:, number, knob, column] = value
