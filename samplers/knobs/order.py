"""The steps of the chain that a request may reorder, and orders that have a name. Torch-free.

What comes first (bias, bans, minimum length) and last (the draw) is fixed.
"""

from collections.abc import Mapping
from typing import Literal

StepName = Literal[
    "repetition_penalty",
    "dry",
    "no_repeat_ngram",
    "length_penalty",
    "top_n_sigma",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "xtc",
]
OrderName = Literal["canonical", "hf", "llama", "vall_e"]
Order = tuple[StepName, ...]

ORDERS: Mapping[OrderName, Order] = {
    # Penalties see the model's own logits, top_n_sigma an untruncated spread, filters the
    # temperature that will be drawn at.
    "canonical": (
        "repetition_penalty", "dry", "no_repeat_ngram", "length_penalty", "top_n_sigma",
        "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff",
        "xtc",
    ),
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

PENALTIES: frozenset[StepName] = frozenset((
    "repetition_penalty",
    "dry",
    "no_repeat_ngram",
    "length_penalty",
))
"""Steps that change what the model said; the others decide how it is drawn."""


def arrange(order: OrderName | Order, *, temperature_last: bool) -> Order:
    """Spell out an order.

    Args:
        order: A name, or the steps themselves; a step that is left out is off.
        temperature_last: Move the temperature behind all other steps.

    Returns:
        The steps, first to last.
    """
    steps = ORDERS[order] if isinstance(order, str) else order
    if temperature_last and "temperature" in steps:
        return (*(step for step in steps if step != "temperature"), "temperature")
    return steps
