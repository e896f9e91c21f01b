"""Hypothesis strategies: any legal params, and logits that no sane model gives."""

import math
from functools import cache
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from samplers.knobs.params import SamplingParams
from samplers.knobs.steps import ORDERS

# In the vocabulary of the tests, outside it, and beyond any tensor.
CODES = st.integers(-2, 20) | st.sampled_from([2**63, -(10**30)])

ENTROPIX = st.fixed_dictionaries({
    "entropix": st.just(True),
    "entropix_action": st.sampled_from(["temperature", "resample", "pause", "branch"]),
    "beam_width": st.just(0),
    "entropix_low_varentropy": st.sampled_from([0.0, 0.1, 1e3]),
    "entropix_helv_entropy": st.sampled_from([0.0, 1.0]),
    "entropix_pause_silence": st.integers(1, 2),
})
"""Entropix in any of its states, for it is seldom among the few knobs that are sampled."""

SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "preset": st.just("auto"),
    "seed": st.none() | st.integers(0, 2**63 - 1),
    "logit_bias": st.dictionaries(
        CODES, st.floats(-100, 100) | st.sampled_from([1e38, 1e300, -1e300]), max_size=3
    ),
    "ban_tokens": st.lists(CODES, max_size=4),
    "ban_sequences": st.lists(
        st.fixed_dictionaries(
            {"codes": st.lists(CODES, min_size=1, max_size=4)},
            optional={"strength": st.floats(0, 200) | st.just(1e300)},
        ),
        max_size=3,
    ),
    "dry_sequence_breakers": st.lists(CODES, max_size=4),
    "sampler_order": st.sampled_from(sorted(ORDERS))
    | st.lists(st.sampled_from(ORDERS["canonical"]), unique=True),
    "nar_level_temperatures": st.lists(st.floats(-1, 3), max_size=3),
}
"""SamplingTensors whose values cannot be read off a type and bounds."""


def _bounded(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -10))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    usual = max(20, low) if high is None else high
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            huge = st.sampled_from([2**31, 2**62, 2**63 - 1, 2**63, 10**30])
            integers = st.integers(low, min(usual, 100))
            return integers | huge if high is None else integers | st.just(high)
        case "number":
            floats = st.floats(
                low, usual,
                exclude_min="exclusiveMinimum" in schema, exclude_max="exclusiveMaximum" in schema,
            )  # fmt: skip
            return floats | st.sampled_from([1e3, 1e38, 1e300]) if high is None else floats
    raise AssertionError(f"no strategy for {schema}")


@cache
def knob_values() -> dict[str, st.SearchStrategy[Any]]:
    """A strategy of legal values for each knob, from its declaration."""
    schema = SamplingParams.model_json_schema()["properties"]
    return {
        name: SPECIAL[name] if name in SPECIAL else _bounded(schema[name])
        for name in SamplingParams.model_fields
    }


@st.composite
def sampling_params(draw: st.DrawFn) -> SamplingParams:
    """Any legal params, mostly with a few knobs off their defaults."""
    values = knob_values()
    names = draw(st.lists(st.sampled_from(sorted(values)), unique=True, max_size=12))
    chosen = {name: draw(values[name]) for name in names} | draw(st.just({}) | ENTROPIX)
    return SamplingParams.model_validate(chosen)


@st.composite
def hard_logits(draw: st.DrawFn, rows: int, width: int) -> Tensor:
    """``(rows, width)`` float32 with ties, huge values, infinities and NaN."""
    value = st.floats(-20, 20, width=32) | st.sampled_from([
        0.0,
        -math.inf,
        math.inf,
        math.nan,
        3e38,
        -3e38,
        1e-40,
    ])
    pool = draw(st.lists(value, min_size=1, max_size=6))
    picks = draw(
        st.lists(st.integers(0, len(pool) - 1), min_size=rows * width, max_size=rows * width)
    )
    return torch.tensor([pool[pick] for pick in picks]).reshape(rows, width)
