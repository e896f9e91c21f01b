"""The steps of the chain that a request may reorder, and the named orders. Loads without torch.

Bias, bans and the minimum length always come first, the draw last.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from samplers.knobs.knob import SwitchesStep
from samplers.knobs.steps import StepKnobs

STEPS: tuple[str, ...] = tuple(
    dict.fromkeys(
        mark.step
        for field in StepKnobs.model_fields.values()
        for mark in field.metadata
        if isinstance(mark, SwitchesStep)
    )
)
"""The names of the steps, in canonical order."""

if TYPE_CHECKING:
    StepName: TypeAlias = str
else:
    StepName = Literal[STEPS]
OrderName = Literal["canonical", "hf", "llama", "vall_e"]
Order = tuple[StepName, ...]

ORDERS: Mapping[OrderName, Order] = {
    # Penalties see the model's own logits, top_n_sigma an untruncated spread, filters the
    # temperature that will be drawn at.
    "canonical": STEPS,
    # transformers 4.57, `_get_logits_processor`.
    "hf": (
        "repetition_penalty", "no_repeat_ngram", "length_penalty", "temperature", "top_k", "top_p",
        "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff",
    ),
    # llama.cpp's default chain, with our length penalty.
    "llama": (
        "repetition_penalty", "dry", "length_penalty", "top_n_sigma", "top_k", "typical_p",
        "top_p", "min_p", "xtc", "temperature",
    ),
    # vall-e models/base.py at 73833ee, `sample()`.
    "vall_e": (
        "repetition_penalty", "length_penalty", "min_p", "top_k", "top_p", "temperature",
        "top_n_sigma", "dry",
    ),
}  # fmt: skip


def arrange(order: OrderName | Order, *, temperature_last: bool) -> Order:
    """Return the steps of an order, first to last; steps that a list leaves out are off."""
    steps = ORDERS[order] if isinstance(order, str) else order
    if temperature_last and "temperature" in steps:
        return (*(step for step in steps if step != "temperature"), "temperature")
    return steps
