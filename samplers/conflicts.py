"""Which knobs contradict each other, and who gives way. Torch-free: the API reads it too.

A *feature* is something that a knob switches on. A conflict is a pair of features that cannot act
together. If the caller set both, the request is refused; if the caller set one and a preset the
other, the preset's gives way.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samplers.params import SamplingParams


class ConflictError(ValueError):
    """Two knobs that the caller set contradict each other.

    Attributes:
        fields: Names of the knobs at fault.
    """

    def __init__(self, fields: tuple[str, ...], reason: str) -> None:
        super().__init__(f"{' and '.join(fields)}: {reason}")
        self.fields = fields


@dataclass(frozen=True)
class Feature:
    """Something that one knob switches: the knob, and when it is on."""

    knob: str
    on: Callable[["SamplingParams"], bool]


FEATURES: Mapping[str, Feature] = {
    "repetition_penalty": Feature("repetition_penalty", lambda p: p.repetition_penalty != 1),
    "length_penalty": Feature("length_penalty", lambda p: p.length_penalty != 0),
    "temperature": Feature("temperature", lambda p: p.temperature != 1),
    "greedy": Feature("temperature", lambda p: p.temperature <= 0),
    "top_k": Feature("top_k", lambda p: p.top_k > 0),
    "top_p": Feature("top_p", lambda p: p.top_p < 1),
    "min_p": Feature("min_p", lambda p: p.min_p > 0),
}

CONFLICTS: Mapping[tuple[str, str], str] = {}


def settle(params: "SamplingParams", *, chosen: Collection[str]) -> tuple[str, ...]:
    """Find the knobs of a preset that must give way to what the caller set.

    Args:
        params: Caller's values over the preset's over the defaults.
        chosen: Names of the knobs that the caller set.

    Returns:
        Names of the knobs to switch off.

    Raises:
        ConflictError: Both sides of a conflict come from the caller (or both from the preset).
    """
    losers: list[str] = []
    for (left, right), reason in CONFLICTS.items():
        first, second = FEATURES[left], FEATURES[right]
        if not (first.on(params) and second.on(params)):
            continue
        if (first.knob in chosen) == (second.knob in chosen):
            raise ConflictError((first.knob, second.knob), reason)
        losers.append(second.knob if first.knob in chosen else first.knob)
    return tuple(losers)
