"""Features: what a knob switches on, whether it is on, and what it needs to act. Torch-free.

Every knob with an off value is a feature by its own name, on unless the knob is at that value. A
few more are declared here: those that depend on two knobs, and values that have a name.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from samplers.knobs.conditions import (
    Conditions,
    above,
    at_least,
    at_most,
    hold,
    one_of,
    other_than,
)
from samplers.knobs.knob import Needs, SwitchesStep
from samplers.knobs.params import SamplingParams, hints, off_value
from samplers.knobs.steps import StepName


@dataclass(frozen=True)
class Feature:
    """Something that a knob switches on."""

    knob: str
    when: Conditions  # knobs at whose values params ask for the feature
    # the step of the order that it belongs to; None if it is not part of the order
    step: StepName | None = None
    # Whether it has no effect on a greedy row, which takes nothing at random
    random: bool = False
    group: str = ""  # group of the knob, as documentation shows it


_ALL_OFF = SamplingParams.model_validate({
    name: off_value(name) for name in SamplingParams.model_fields if "off" in hints(name)
})

_CONDITIONS: Mapping[str, Conditions] = {
    "xtc_probability": {"xtc_probability": above(0), "xtc_threshold": at_most(0.5)},
    "mirostat_mode": {"mirostat_mode": above(0), "mirostat_tau": above(0)},
    "top_k": {"top_k": above(0)},
    "top_n_sigma": {"top_n_sigma": above(0)},
    "min_temperature": {"min_temperature": at_least(0)},
}
"""When a feature is on that depends on more than its knob's being at another than its off value."""

_RANDOM = ("mirostat_mode", "ras", "entropix")
"""Random features that are not part of the order."""


def _of_knob(name: str) -> Feature:
    """Return the feature that a knob is by its declaration."""
    mark = next(
        (
            one
            for one in SamplingParams.model_fields[name].metadata
            if isinstance(one, SwitchesStep)
        ),
        None,
    )
    return Feature(
        name,
        _CONDITIONS.get(name, {name: other_than(off_value(name))}),
        step=mark.step if mark else None,
        random=mark.random if mark else name in _RANDOM,
        group=hints(name)["group"],
    )


FEATURES: Mapping[str, Feature] = {
    name: _of_knob(name) for name in SamplingParams.model_fields if "off" in hints(name)
} | {
    "greedy": Feature("temperature", {"temperature": at_most(0)}),
    "branch": Feature(
        "entropix_action",
        {"entropix": one_of(True), "entropix_action": one_of("branch")},
        random=True,
    ),
    "pause": Feature(
        "entropix_action",
        {"entropix": one_of(True), "entropix_action": one_of("pause")},
        random=True,
    ),
}


def is_on(feature: str, params: SamplingParams) -> bool:
    """Return whether a feature has an effect; a random one has none on a greedy row."""
    asked = FEATURES[feature]
    return hold(asked.when, params) and not (asked.random and params.temperature <= 0)


def is_guided(params: SamplingParams, stage: Literal["ar", "nar", "masked"] = "ar") -> bool:
    """Return whether level 0, the NAR levels or masked passes use classifier-free guidance."""
    strengths = {
        "ar": params.cfg_strength,
        "nar": params.nar_cfg_strength,
        "masked": params.nar_len_cfg_strength,
    }
    return strengths[stage] > 1


def sequences_of(params: SamplingParams) -> int:
    """Return how many sequences of an utterance may be sampled at once."""
    branches = is_on("branch", params)
    ways = params.entropix_branch_rollouts if branches else 1
    return max(params.beam_width, params.best_of, ways)


def has_null_row(params: SamplingParams, one_row_strength: float) -> bool:
    """Return whether guidance of level 0 takes a row of its own, without text and prompt.

    A model that predicts that row's logits does so up to ``one_row_strength``, 1 if it does not. A
    request takes as many rows whoever asks what of it, so that a trace shows the codes that a
    request without one has.
    """
    return is_guided(params) and (params.cfg_strength > one_row_strength or params.cfg_rescale > 0)


def rows_needed(params: SamplingParams, one_row_strength: float) -> int:
    """Return how many rows an utterance needs: one a sequence, two with a null row."""
    return sequences_of(params) * (2 if has_null_row(params, one_row_strength) else 1)


def rewindable(params: SamplingParams, frames: int) -> int:
    """Return how many of the newest of so many frames backtracking, if it is on, may take back."""
    return min(params.backtrack_window, int(params.backtrack_share * frames))


def knob_at_fault(params: SamplingParams) -> str:
    """Return the knob that asks for most rows, to name where they are too many."""
    if sequences_of(params) == 1:
        return "cfg_strength"
    if params.beam_width > 1:
        return "beam_width"
    return "best_of" if params.best_of > 1 else "entropix_branch_rollouts"


SHARED_GROUPS: Final = frozenset({"request", "nar", "joining"})
"""Groups of knobs that act with either method of level 0."""

_OTHER_METHOD: Final = "level_0 ar"

_THRESHOLDS: Final = (
    "entropix_low_entropy", "entropix_low_varentropy", "entropix_helv_entropy",
    "entropix_lehv_entropy", "entropix_hehv_entropy", "entropix_high_varentropy",
)  # fmt: skip


def idle_knobs(params: SamplingParams, sent: Collection[str]) -> dict[str, str]:
    """Return the knobs among a request's ``sent`` fields that do nothing, and what each needs."""
    return {
        name: what_needs(name) if heeds(name, params.level_0) else _OTHER_METHOD
        for name in SamplingParams.model_fields
        if name in sent and not (_acts(name, params) and heeds(name, params.level_0))
    }


def heeds(knob: str, method: Literal["ar", "masked", "auto"]) -> bool:
    """Return whether a method of level 0 heeds a knob.

    What only masked passes heed is idle without them for the want of `level_0`, which it needs.
    """
    group = hints(knob)["group"]
    return method != "masked" or group == "masked" or group in SHARED_GROUPS


def what_needs(name: str) -> str:
    """Return what a knob needs to act, in words."""
    return "; ".join(_in_words(need) for need in needs_of(name))


def param_warnings(params: SamplingParams) -> list[str]:
    """Return what the author of a request may not expect of knobs that act, a sentence each."""
    measured = any(
        getattr(params, name) != SamplingParams.model_fields[name].default for name in _THRESHOLDS
    )
    if not params.entropix or measured:
        return []
    return [
        "entropix has the thresholds of a text model: most codes fall into one of its states; take"
        " the preset entropix, which is the built-in voice's, or one of valle-serve tools calibrate"
    ]


def needs_of(name: str) -> Needs:
    """Return what a knob needs, see `samplers.knobs.knob.Needs`; empty if nothing."""
    needs: Needs = hints(name).get("needs", ())
    return needs


def _acts(name: str, params: SamplingParams) -> bool:
    return all(any(_set(*one, params) for one in need.items()) for need in needs_of(name))


def _set(name: str, values: Sequence[Any], params: SamplingParams) -> bool:
    value = getattr(params, name)
    at = value in values if values else value != getattr(_ALL_OFF, name)
    return at and _acts(name, params)


def _in_words(need: Mapping[str, Sequence[Any]]) -> str:
    return " or ".join(
        f"{name} {' or '.join(map(str, values))}" if values else name
        for name, values in need.items()
    )
