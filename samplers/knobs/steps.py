"""The knobs of the steps of the chain that a request may reorder, and the named orders. Torch-free.

They stand in canonical order, which the `SwitchesStep` annotations below give. Bias, bans and the
minimum length always come first, the sample last.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import field_validator

from samplers.knobs.knob import KnobSet, SwitchesStep, knob

PenaltyMode = Literal["signed", "additive", "raw"]

MOST_CODES = 4096
"""How many codes a knob may name: more than any codebook has."""


_penalty = partial(knob, group="repetition", needs=({"repetition_penalty": ()},))
_dry = partial(knob, group="dry", needs=({"dry_multiplier": ()},))


class StepKnobs(KnobSet):
    """Penalties, temperature and truncation filters, in canonical order."""

    # fmt: off
    repetition_penalty: Annotated[float, SwitchesStep("repetition_penalty")] = knob(
        1.0, "Divides the odds of recent codes, once per occurrence; above 1 discourages.",
        group="repetition", off=1.0, step=0.01, bottom=0.9, top=1.5, gt=0.0,
        values=(1.0, 1.02, 1.05, 1.1),
        synonyms="repeat loop stutter again",
    )
    repetition_penalty_decay: float = _penalty(
        0.0,
        "Exponent on the distance d of an occurrence: its nats are ln repetition_penalty d^decay; "
        "below 0 old codes are punished less. Where the mode is not additive its penalty is "
        "repetition_penalty d^decay, which acts on the last repetition_penalty^(1/-decay) codes.",
        off=0.0, step=0.05, bottom=-1.0, top=0.5, ge=-2.0, le=2.0,
        values=(-1.0, -0.5, -0.25, 0.0),
    )
    repetition_penalty_window: int = knob(
        75, "How many of the newest codes the repetition, frequency and presence penalties count; "
        "0 is all of them.",
        group="repetition", unit="frames", step=1, bottom=1, top=150, ge=0,
        values=(25, 75, 150),
        needs=({"repetition_penalty": (), "frequency_penalty": (), "presence_penalty": ()},),
    )
    repetition_penalty_one_time: bool = _penalty(
        False, "Count only the newest occurrence of a code instead of every one.",
        off=False,
    )
    repetition_penalty_mode: PenaltyMode = _penalty(
        "additive",
        "How the penalty P acts: `additive` subtracts ln P, which divides the odds by P. `signed` "
        "divides positive and multiplies negative logits, `raw` always divides (the reference).",
    )
    repetition_penalty_clamp: bool = knob(
        True,
        "Never let the distance turn an occurrence's penalty into a reward, which no additive one "
        "is; off only to reproduce the reference.",
        group="repetition", off=False,
        needs=(
            {"repetition_penalty_decay": ()},
            {"repetition_penalty_mode": ("signed", "raw")},
        ),
    )
    penalty_includes_prompt: bool = knob(
        False,
        "Penalties, DRY and no_repeat_ngram_size count the codes of the voice's prompt as if they "
        "had been sampled just before.",
        group="repetition", off=False,
        needs=(
            {
                "repetition_penalty": (), "frequency_penalty": (), "presence_penalty": (),
                "dry_multiplier": (), "no_repeat_ngram_size": (),
            },
        ),
    )
    frequency_penalty: Annotated[float, SwitchesStep("repetition_penalty")] = knob(
        0.0, "Subtracted from a code's logit once for each of its occurrences.",
        group="repetition", off=0.0, unit="nats", step=0.05, bottom=-0.25, top=1.0, ge=-10.0,
        le=10.0,
        values=(0.0, 0.02, 0.05),
        synonyms="repeat repetition",
    )
    presence_penalty: Annotated[float, SwitchesStep("repetition_penalty")] = knob(
        0.0, "Subtracted from a code's logit if it occurred at all.",
        group="repetition", off=0.0, unit="nats", step=0.05, bottom=-1.0, top=1.0, ge=-10.0,
        le=10.0,
        values=(0.0, 0.02, 0.05),
        synonyms="repeat repetition",
    )
    dry_multiplier: Annotated[float, SwitchesStep("dry")] = knob(
        0.0, "DRY: what is subtracted from a code that would prolong a repeated sequence.",
        group="dry", off=0.0, unit="nats", step=0.1, top=4.0, ge=0.0, le=8.0,
        values=(0.0, 0.5, 1.0, 2.0),
        synonyms="repeat repetition loop stutter again",
    )
    dry_base: float = _dry(
        1.75, "DRY: by what the penalty grows with each further code of the repeated sequence.",
        step=0.05, top=4.0, ge=1.0,
    )
    dry_allowed_length: int = _dry(
        2, "DRY: sequences shorter than this may repeat.",
        unit="frames", step=1, top=12, ge=1,
        values=(2, 4, 8, 12),
    )
    dry_range: int = _dry(
        0, "DRY: how many of the newest codes it looks at; 0 is all of them.",
        unit="frames", step=1, bottom=1, top=20, ge=0,
    )
    dry_sequence_breakers: tuple[int, ...] = _dry(
        (), "DRY: codes (silence, say) that end a sequence and are never punished.",
        off=[], max_length=MOST_CODES, fail_fast=True,
    )
    no_repeat_ngram_size: Annotated[int, SwitchesStep("no_repeat_ngram")] = knob(
        0, "Forbids any sequence of this many codes to occur twice; harmful for most speech.",
        group="repetition", off=0, unit="frames", step=1, top=16, ge=0,
        values=(0, 8, 12, 16),
        synonyms="repetition loop",
    )
    length_penalty: Annotated[float, SwitchesStep("length_penalty")] = knob(
        0.0, "Power of the length by which the stop's odds fall; above 0 is longer, below shorter.",
        group="length", off=0.0, step=0.05, slider=False, ge=-2.0, le=2.0,
        values=(-0.1, -0.05, 0.0, 0.05, 0.1),
        synonyms="short long early late ending",
    )
    length_penalty_mode: PenaltyMode = knob(
        "additive", "How the length penalty acts on the stop's logit; as repetition_penalty_mode.",
        group="length",
        needs=({"length_penalty": ()},),
    )
    exponential_decay_factor: Annotated[float, SwitchesStep("length_penalty")] = knob(
        1.0, "Above 1 the stop's logit grows with each frame past exponential_decay_start.",
        group="length", off=1.0, step=0.01, top=1.5, slider=False, gt=0.0,
        values=(1.0, 1.01, 1.02, 1.05),
    )
    exponential_decay_start: int = knob(
        0, "After how many frames exponential_decay_factor begins to act.",
        group="length", unit="frames", step=1, top=1500, slider=False, ge=0,
        needs=({"exponential_decay_factor": ()},),
    )

    top_n_sigma: Annotated[float, SwitchesStep("top_n_sigma")] = knob(
        0.0, "Keep codes within this many standard deviations of the best logit; 0 keeps all.",
        group="truncation", off=0.0, step=0.1, bottom=0.0, top=2.0, ge=-1.0,
        values=(0.0, 1.0, 1.5, 2.0),
    )
    temperature: Annotated[float, SwitchesStep("temperature")] = knob(
        1.0, "Divides the logits; below 1 is safer, above 1 more varied, 0 or less is greedy.",
        group="temperature", off=1.0, step=0.05, bottom=0.0, top=2.0, ge=-1.0,
        label="Liveliness", values=(0.4, 0.6, 0.8, 1.0, 1.2),
        synonyms="creative random varied variety expressive monotone boring safe",
    )
    min_temperature: Annotated[float, SwitchesStep("temperature", random=True)] = knob(
        -1.0, "From 0 on, the temperature moves between this (sure of itself) and temperature.",
        group="temperature", off=-1.0, step=0.05, bottom=0.0, top=1.0, ge=-1.0,
        values=(-1.0, 0.3, 0.5, 0.7),
    )
    dynatemp_mode: Literal["sigmoid", "entropy"] = knob(
        "sigmoid", "What moves the temperature: the best code's probability, or the entropy.",
        group="temperature",
        needs=({"min_temperature": ()},),
    )
    dynatemp_slope: float = knob(
        10.0, "Steepness of the sigmoid of dynatemp_mode=sigmoid.",
        group="temperature", step=1.0, top=50.0, ge=0.0,
        needs=({"dynatemp_mode": ("sigmoid",)},),
    )
    dynatemp_center: float = knob(
        0.5, "Probability of the best code at which that sigmoid is halfway.",
        group="temperature", step=0.05, ge=0.0, le=1.0,
        needs=({"dynatemp_mode": ("sigmoid",)},),
    )
    dynatemp_exponent: float = knob(
        1.0, "Exponent on the entropy (as a share of the highest possible) of its mode.",
        group="temperature", step=0.1, top=3.0, gt=0.0,
        needs=({"dynatemp_mode": ("entropy",)},),
    )
    unified_conf: Annotated[float, SwitchesStep("temperature", random=True)] = knob(
        0.0, "Cools where the model is unsure: log-probabilities times 1 + this times the entropy.",
        group="temperature", off=0.0, step=0.05, bottom=0.0, top=2.0, ge=-0.1, le=10.0,
    )
    unified_quad: Annotated[float, SwitchesStep("temperature", random=True)] = knob(
        0.0, "Makes unlikely codes rarer and none impossible: takes this times the square of a "
        "log-probability in nats.",
        group="temperature", off=0.0, step=0.01, top=0.5, ge=0.0, le=10.0,
    )
    top_k: Annotated[int, SwitchesStep("top_k")] = knob(
        0, "Keep the k likeliest codes (and ties); 0 or -1 keeps all.",
        group="truncation", off=0, step=1, bottom=1, top=50, ge=-1,
        values=(0, 25, 50, 100),
        synonyms="random variety",
    )
    top_p: Annotated[float, SwitchesStep("top_p")] = knob(
        1.0, "Keep the likeliest codes until their probabilities sum to this; 0 keeps one.",
        group="truncation", off=1.0, step=0.01, bottom=0.2, ge=0.0, le=1.0,
        values=(0.8, 0.85, 0.9, 0.95, 1.0),
        synonyms="nucleus random variety",
    )
    min_p: Annotated[float, SwitchesStep("min_p")] = knob(
        0.0, "Keep codes at least this fraction as likely as the likeliest; 1 or more keeps one.",
        group="truncation", off=0.0, step=0.01, top=1.0, ge=0.0,
        values=(0.0, 0.02, 0.05, 0.1),
        synonyms="random variety",
    )
    min_tokens_to_keep: int = knob(
        1, "min_p keeps at least this many codes.",
        group="truncation", off=1, step=1, top=32, ge=1,
        needs=({"min_p": (), "entropix": ()},),
    )
    p_less: Annotated[bool, SwitchesStep("p_less")] = knob(
        False, "Keep codes at least as likely as two samples are to be equal: the sum of p^2.",
        group="truncation", off=False,
    )
    typical_p: Annotated[float, SwitchesStep("typical_p")] = knob(
        1.0, "Keep the codes whose surprise is nearest the entropy until they sum to this.",
        group="truncation", off=1.0, step=0.01, gt=0.0, le=1.0,
        values=(0.8, 0.9, 0.95, 1.0),
    )
    epsilon_cutoff: Annotated[float, SwitchesStep("epsilon_cutoff")] = knob(
        0.0, "Keep codes with at least this probability.",
        group="truncation", off=0.0, step=0.0005, top=0.02, ge=0.0, lt=1.0,
        values=(0.0, 0.0005, 0.001, 0.002),
    )
    eta_cutoff: Annotated[float, SwitchesStep("eta_cutoff")] = knob(
        0.0, "As epsilon_cutoff, but lower where the entropy is high.",
        group="truncation", off=0.0, step=0.0005, top=0.02, ge=0.0, lt=1.0,
        values=(0.0, 0.0005, 0.001, 0.002),
    )
    xtc_probability: Annotated[float, SwitchesStep("xtc", random=True)] = knob(
        0.0, "Chance that of the codes above `xtc_threshold` only the least likely one is kept.",
        group="xtc", off=0.0, step=0.05, ge=0.0, le=1.0,
        values=(0.0, 0.1, 0.3),
    )
    xtc_threshold: float = knob(
        0.1, "Probability from which a code is likely to xtc_probability; above 0.5 it is off.",
        group="xtc", step=0.01, top=0.5, gt=0.0, le=1.0,
        needs=({"xtc_probability": ()},),
    )
    protect_stop: bool = knob(
        True, "XTC and typical_p never exclude the stop.",
        group="length",
        needs=({"xtc_probability": (), "typical_p": ()},),
    )
    # fmt: on

    @field_validator("top_k", "top_n_sigma")
    @classmethod
    def _negative_is_off(cls, value: float) -> float:
        return max(value, 0)

    @field_validator("min_temperature")
    @classmethod
    def _one_negative_value(cls, temperature: float) -> float:
        return temperature if temperature >= 0 else -1.0


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
    # temperature that will be sampled at.
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
