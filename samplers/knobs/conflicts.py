"""Which knobs contradict each other, and who gives way. Torch-free: the API reads it too.

A *feature* is something that a knob switches on. If the caller set both knobs of a conflict, the
request is refused; if the caller set one and a preset the other, the preset's gives way.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from samplers.knobs.order import StepName, arrange

if TYPE_CHECKING:
    from samplers.knobs.params import SamplingParams


class ConflictError(ValueError):
    """Knobs that the caller set contradict each other.

    Attributes:
        fields: Names of the knobs at fault.
    """

    def __init__(self, fields: tuple[str, ...], reason: str) -> None:
        super().__init__(f"{' and '.join(fields)}: {reason}")
        self.fields = fields


@dataclass(frozen=True)
class Feature:
    """Something that a knob switches: the knob, when it is on, and the step that it belongs to."""

    knob: str
    on: Callable[["SamplingParams"], bool]
    step: StepName | None = None


FEATURES: Mapping[str, Feature] = {
    "repetition_penalty": Feature(
        "repetition_penalty", lambda p: p.repetition_penalty != 1, "repetition_penalty"
    ),
    "frequency_penalty": Feature(
        "frequency_penalty", lambda p: p.frequency_penalty != 0, "repetition_penalty"
    ),
    "presence_penalty": Feature(
        "presence_penalty", lambda p: p.presence_penalty != 0, "repetition_penalty"
    ),
    "dry": Feature("dry_multiplier", lambda p: p.dry_multiplier > 0, "dry"),
    "no_repeat_ngram": Feature(
        "no_repeat_ngram_size", lambda p: p.no_repeat_ngram_size > 0, "no_repeat_ngram"
    ),
    "length_penalty": Feature("length_penalty", lambda p: p.length_penalty != 0, "length_penalty"),
    "exponential_decay": Feature(
        "exponential_decay_factor", lambda p: p.exponential_decay_factor != 1, "length_penalty"
    ),
    "top_n_sigma": Feature("top_n_sigma", lambda p: p.top_n_sigma > 0, "top_n_sigma"),
    "temperature": Feature("temperature", lambda p: p.temperature != 1, "temperature"),
    "greedy": Feature("temperature", lambda p: p.temperature <= 0),
    "dynatemp": Feature("min_temperature", lambda p: p.min_temperature >= 0, "temperature"),
    "top_k": Feature("top_k", lambda p: p.top_k > 0, "top_k"),
    "top_p": Feature("top_p", lambda p: p.top_p < 1, "top_p"),
    "min_p": Feature("min_p", lambda p: p.min_p > 0, "min_p"),
    "typical_p": Feature("typical_p", lambda p: p.typical_p < 1, "typical_p"),
    "epsilon_cutoff": Feature("epsilon_cutoff", lambda p: p.epsilon_cutoff > 0, "epsilon_cutoff"),
    "eta_cutoff": Feature("eta_cutoff", lambda p: p.eta_cutoff > 0, "eta_cutoff"),
    "xtc": Feature(
        "xtc_probability", lambda p: p.xtc_probability > 0 and p.xtc_threshold <= 0.5, "xtc"
    ),
    "mirostat": Feature("mirostat_mode", lambda p: p.mirostat_mode > 0 and p.mirostat_tau > 0),
    "ras": Feature("ras", lambda p: p.ras),
    "entropix": Feature("entropix", lambda p: p.entropix),
    "branch": Feature("entropix_action", lambda p: p.entropix and p.entropix_action == "branch"),
    "backtrack": Feature("backtrack", lambda p: p.backtrack),
    "best_of": Feature("best_of", lambda p: p.best_of > 1),
    "beam": Feature("beam_width", lambda p: p.beam_width > 0),
}

RANDOM = ("dynatemp", "xtc", "mirostat", "ras", "entropix", "branch")
"""Features that a greedy row does without: it has nothing to draw."""


@dataclass(frozen=True)
class Conflict:
    """Two knobs, when they clash, and why."""

    knobs: tuple[str, str]
    clash: Callable[["SamplingParams"], bool]
    reason: str


def _both(left: str, right: str, params: "SamplingParams") -> bool:
    return FEATURES[left].on(params) and FEATURES[right].on(params)


_MOVED: frozenset[StepName] = frozenset(("temperature", "top_k", "top_p", "min_p"))
"""The steps whose knobs entropix moves."""


def _steps(params: "SamplingParams") -> frozenset[StepName]:
    return frozenset(arrange(params.sampler_order, temperature_last=False))


def _left_out(feature: Feature, params: "SamplingParams") -> bool:
    return feature.on(params) and feature.step not in _steps(params)


def _pairs(left: str, others: Sequence[str], reason: str) -> list[Conflict]:
    knob = FEATURES[left].knob
    return [Conflict((knob, FEATURES[r].knob), partial(_both, left, r), reason) for r in others]


CONFLICTS: Sequence[Conflict] = (
    *_pairs(
        "mirostat",
        ("top_n_sigma", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"),
        "mirostat chooses what is kept by itself",
    ),
    *_pairs("mirostat", ("xtc", "ras"), "both want the last word on what is drawn"),
    *_pairs("greedy", ("xtc", "mirostat", "ras", "entropix"), "a greedy row has nothing to draw"),
    *_pairs("entropix", ("mirostat", "ras"), "both want the last word on what is drawn"),
    *_pairs("entropix", ("dynatemp",), "both move the temperature"),
    *_pairs("beam", ("mirostat", "xtc", "ras", "entropix"), "a beam search draws nothing"),
    *_pairs("beam", ("greedy",), "a greedy row leaves nothing to search"),
    *_pairs("best_of", ("greedy",), "a greedy row has nothing to draw: all takes would be one"),
    *_pairs("best_of", ("beam", "branch"), "both choose between ways to speak"),
    *_pairs("backtrack", ("beam", "branch"), "both take back what was drawn"),
    Conflict(
        ("entropix", "sampler_order"),
        lambda p: FEATURES["entropix"].on(p) and bool(_MOVED - _steps(p)),
        "the order leaves out a step whose knob entropix moves",
    ),
    Conflict(
        ("min_temperature", "temperature"),
        lambda p: FEATURES["dynatemp"].on(p) and p.min_temperature > p.temperature,
        "the lowest temperature is above the highest",
    ),
    Conflict(
        ("temperature_last", "sampler_order"),
        lambda p: (
            p.temperature_last
            and "temperature" not in arrange(p.sampler_order, temperature_last=False)
        ),
        "the order has no temperature to move",
    ),
    *(
        Conflict(
            (feature.knob, "sampler_order"),
            partial(_left_out, feature),
            "the order leaves this step out, which switches it off",
        )
        for feature in FEATURES.values()
        if feature.step is not None
    ),
)


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
    for conflict in CONFLICTS:
        if not conflict.clash(params):
            continue
        stays = [knob for knob in conflict.knobs if knob in chosen]
        if len(stays) != 1:
            raise ConflictError(conflict.knobs, conflict.reason)
        losers += [knob for knob in conflict.knobs if knob not in stays]
    return tuple(losers)
