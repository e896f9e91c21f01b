"""The one declaration of every sampling knob: name, type, bounds, default, off value, one sentence.

The OpenAPI schema, the 422 messages, the command line's flags, the table in the docs, the studio's
controls and the batch's tensors all read `SamplingParams`. The knobs of entropix, a third of all,
stand in `samplers.knobs.entropix`, those of masked level 0 in `samplers.knobs.masked`, those of
several takes at once in `samplers.knobs.candidates`; nothing else may give a knob a default
(`tests/samplers/knobs/test_single_source.py` walks the source). It does not know torch.

Each knob's JSON schema carries `x-ui`, of `samplers.knobs.knob.knob`: `group`, `unit`, `off` (the
value at which the knob does nothing), `step` (of a slider) and, where there is no upper bound,
`top`.
"""

import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator

from samplers.knobs.candidates import CandidateKnobs
from samplers.knobs.conflicts import settle
from samplers.knobs.entropix import EntropixKnobs
from samplers.knobs.knob import Knobs, knob
from samplers.knobs.masked import MaskedKnobs
from samplers.knobs.order import OrderName, StepName
from samplers.knobs.presets import AUTO, PRESETS, Presets, look_up

PenaltyMode = Literal["signed", "additive", "raw"]
NarDecision = Literal["likeliest", "mean"]

MOST_CODES = 4096
"""How many codes a knob may name: more than any codebook has."""

_EACH_STEP = Field(max_length=len(get_args(StepName)), fail_fast=True)


class BannedSequence(Knobs):
    """Codes that must not follow one another."""

    codes: tuple[int, ...] = Field(
        min_length=1, max_length=75, fail_fast=True, description="The sequence, first code first."
    )
    strength: float = Field(
        default=100.0,
        ge=0.0,
        description="Nats taken from the code that would complete it; 100 or more forbids it.",
    )


class _Flat(Knobs):
    """All knobs but those with a file of their own, in the order of use."""

    # fmt: off
    preset: str = knob(
        AUTO,
        "Named set of knobs to start from; `auto` is the one named in the loaded model's card.",
        group="request", max_length=100,
    )
    seed: int | None = knob(
        None,
        "Seed of every draw; the same request with the same seed gives the same codes. "
        "Without one a seed is drawn and reported.",
        group="request", ge=0, le=2**63 - 1,
    )

    cfg_strength: float = knob(
        1.0, "Guidance: how far to go from what the model says without the words towards what it "
        "says with them, and beyond; doubles the work.",
        group="guidance", off=1.0, step=0.1, top=4.0, ge=1.0,
    )
    cfg_rescale: float = knob(
        0.7, "How much of the guided logits' spread is set back to that without guidance.",
        group="guidance", off=0.0, step=0.05, ge=0.0, le=1.0,
    )
    logit_bias: dict[int, float] = knob(
        {}, "Code id to a value added to its logit; -100 as good as bans it.",
        group="bans", off={}, unit="nats", max_length=MOST_CODES,
    )
    ban_tokens: tuple[int, ...] = knob(
        (), "Code ids that are never drawn; ids outside the codebook have no effect.",
        group="bans", off=[], max_length=MOST_CODES, fail_fast=True,
    )
    ban_sequences: tuple[BannedSequence, ...] = knob(
        (), "Sequences of codes whose last code is punished when the others were just drawn; with "
        "backtrack, one that was completed all the same is taken back to its first code.",
        group="bans", off=[], max_length=64, fail_fast=True,
    )
    min_frames: int = knob(
        0, "Speech cannot end before this many frames.",
        group="length", off=0, unit="frames", step=1, top=750, ge=0,
    )

    repetition_penalty: float = knob(
        1.0, "Divides the odds of recently drawn codes, once per occurrence; above 1 discourages.",
        group="repetition", off=1.0, step=0.01, top=2.0, gt=0.0,
    )
    repetition_penalty_decay: float = knob(
        0.0,
        "Exponent on the distance d of an occurrence: its penalty is repetition_penalty * d^decay; "
        "below 0 old codes are punished less.",
        group="repetition", off=0.0, step=0.05, ge=-2.0, le=2.0,
    )
    repetition_penalty_window: int = knob(
        75, "How many of the newest codes the repetition, frequency and presence penalties count; "
        "0 is all of them.",
        group="repetition", unit="frames", step=1, top=750, ge=0,
    )
    repetition_penalty_one_time: bool = knob(
        False, "Count only the newest occurrence of a code instead of every one.",
        group="repetition", off=False,
    )
    repetition_penalty_mode: PenaltyMode = knob(
        "signed",
        "How the penalty P acts: `signed` divides positive and multiplies negative logits, "
        "`additive` subtracts ln P, `raw` always divides (as the reference does).",
        group="repetition",
    )
    repetition_penalty_clamp: bool = knob(
        True,
        "Never let the distance turn an occurrence's penalty into a reward; "
        "off only to reproduce the reference.",
        group="repetition", off=False,
    )
    penalty_includes_prompt: bool = knob(
        False,
        "Penalties, DRY and no_repeat_ngram_size count the codes of the voice's prompt as if they "
        "had been drawn just before.",
        group="repetition", off=False,
    )
    frequency_penalty: float = knob(
        0.0, "Subtracted from a code's logit once for each of its occurrences.",
        group="repetition", off=0.0, unit="nats", step=0.05, ge=-2.0, le=2.0,
    )
    presence_penalty: float = knob(
        0.0, "Subtracted from a code's logit if it occurred at all.",
        group="repetition", off=0.0, unit="nats", step=0.05, ge=-2.0, le=2.0,
    )
    dry_multiplier: float = knob(
        0.0, "DRY: what is subtracted from a code that would prolong a repeated sequence.",
        group="dry", off=0.0, unit="nats", step=0.1, ge=0.0, le=8.0,
    )
    dry_base: float = knob(
        1.75, "DRY: by what the penalty grows with each further code of the repeated sequence.",
        group="dry", step=0.05, top=4.0, ge=1.0,
    )
    dry_allowed_length: int = knob(
        2, "DRY: sequences shorter than this may repeat.",
        group="dry", unit="frames", step=1, top=75, ge=1,
    )
    dry_range: int = knob(
        0, "DRY: how many of the newest codes it looks at; 0 is all of them.",
        group="dry", unit="frames", step=1, top=750, ge=0,
    )
    dry_sequence_breakers: tuple[int, ...] = knob(
        (), "DRY: codes (silence, say) that end a sequence and are never punished.",
        group="dry", off=[], max_length=MOST_CODES, fail_fast=True,
    )
    no_repeat_ngram_size: int = knob(
        0, "Forbids any sequence of this many codes to occur twice; harmful for most speech.",
        group="repetition", off=0, unit="frames", step=1, top=75, ge=0,
    )
    length_penalty: float = knob(
        0.0, "Power of the length by which the stop's odds fall; above 0 is longer, below shorter.",
        group="length", off=0.0, step=0.05, ge=-2.0, le=2.0,
    )
    length_penalty_mode: PenaltyMode = knob(
        "signed", "How the length penalty acts on the stop's logit; as repetition_penalty_mode.",
        group="length",
    )
    exponential_decay_factor: float = knob(
        1.0, "Above 1 the stop's logit grows with each frame past exponential_decay_start.",
        group="length", off=1.0, step=0.01, top=1.5, gt=0.0,
    )
    exponential_decay_start: int = knob(
        0, "After how many frames exponential_decay_factor begins to act.",
        group="length", unit="frames", step=1, top=1500, ge=0,
    )

    top_n_sigma: float = knob(
        0.0, "Keep codes within this many standard deviations of the best logit; 0 keeps all.",
        group="truncation", off=0.0, step=0.1, top=4.0, ge=-1.0,
    )
    temperature: float = knob(
        1.0, "Divides the logits; below 1 is safer, above 1 more varied, 0 or less is greedy.",
        group="temperature", off=1.0, step=0.05, top=2.0, ge=-1.0,
    )
    min_temperature: float = knob(
        -1.0, "From 0 on, the temperature moves between this (sure of itself) and temperature.",
        group="temperature", off=-1.0, step=0.05, top=2.0, ge=-1.0,
    )
    dynatemp_mode: Literal["sigmoid", "entropy"] = knob(
        "sigmoid", "What moves the temperature: the best code's probability, or the entropy.",
        group="temperature",
    )
    dynatemp_slope: float = knob(
        10.0, "Steepness of the sigmoid of dynatemp_mode=sigmoid.",
        group="temperature", step=1.0, top=50.0, ge=0.0,
    )
    dynatemp_center: float = knob(
        0.5, "Probability of the best code at which that sigmoid is halfway.",
        group="temperature", step=0.05, ge=0.0, le=1.0,
    )
    dynatemp_exponent: float = knob(
        1.0, "Exponent on the entropy (as a share of the highest possible) of its mode.",
        group="temperature", step=0.1, top=4.0, gt=0.0,
    )
    top_k: int = knob(
        0, "Keep the k likeliest codes (and ties); 0 or -1 keeps all.",
        group="truncation", off=0, step=1, top=1024, ge=-1,
    )
    top_p: float = knob(
        1.0, "Keep the likeliest codes until their probabilities sum to this; 0 keeps one.",
        group="truncation", off=1.0, step=0.01, ge=0.0, le=1.0,
    )
    min_p: float = knob(
        0.0, "Keep codes at least this fraction as likely as the likeliest.",
        group="truncation", off=0.0, step=0.01, ge=0.0, le=1.0,
    )
    min_tokens_to_keep: int = knob(
        1, "min_p keeps at least this many codes.",
        group="truncation", off=1, step=1, top=64, ge=1,
    )
    typical_p: float = knob(
        1.0, "Keep the codes whose surprise is nearest the entropy until they sum to this.",
        group="truncation", off=1.0, step=0.01, gt=0.0, le=1.0,
    )
    epsilon_cutoff: float = knob(
        0.0, "Keep codes with at least this probability.",
        group="truncation", off=0.0, step=0.0005, top=0.02, ge=0.0, lt=1.0,
    )
    eta_cutoff: float = knob(
        0.0, "As epsilon_cutoff, but lower where the entropy is high.",
        group="truncation", off=0.0, step=0.0005, top=0.02, ge=0.0, lt=1.0,
    )
    xtc_probability: float = knob(
        0.0, "Chance that all likely codes but the least likely of them are excluded.",
        group="xtc", off=0.0, step=0.05, ge=0.0, le=1.0,
    )
    xtc_threshold: float = knob(
        0.1, "Probability from which a code is likely to xtc_probability; above 0.5 it is off.",
        group="xtc", step=0.01, gt=0.0, le=1.0,
    )
    protect_stop: bool = knob(
        True, "XTC and typical_p never take the stop away.",
        group="length",
    )
    mirostat_mode: Literal[0, 1, 2] = knob(
        0, "Version of mirostat, which steers the surprise of what is drawn; 0 is off.",
        group="mirostat", off=0,
    )
    mirostat_tau: float = knob(
        3.0, "Surprise that mirostat aims at; 0 is off.",
        group="mirostat", off=0.0, unit="bits", step=0.1, top=10.0, ge=0.0,
    )
    mirostat_eta: float = knob(
        0.1, "How quickly mirostat corrects itself.",
        group="mirostat", step=0.05, top=1.0, gt=0.0,
    )
    mirostat_surprise: Literal["full", "truncated"] = knob(
        "full", "Surprise under all codes (the paper), or under those kept (llama.cpp).",
        group="mirostat",
    )
    ras: bool = knob(
        False, "Repetition-aware sampling: a code drawn again too soon is drawn anew from all.",
        group="ras", off=False,
    )
    ras_top_p: float = knob(
        0.8, "RAS: the first draw is from the likeliest codes that sum to this.",
        group="ras", step=0.01, ge=0.0, le=1.0,
    )
    ras_top_k: int = knob(
        25, "RAS: the first draw is from this many codes at most.",
        group="ras", step=1, top=100, ge=1,
    )
    ras_window: int = knob(
        10, "RAS: how many of the newest codes a drawn code is looked for in.",
        group="ras", unit="frames", step=1, top=75, ge=1,
    )
    ras_tau: float = knob(
        0.1, "RAS: the share of that window from which a code is repeated too often.",
        group="ras", step=0.05, gt=0.0, le=1.0,
    )
    ras_mask_first: bool = knob(
        True, "RAS: the second draw excludes the code of the first, which breaks loops for sure.",
        group="ras", off=False,
    )
    sampler_order: OrderName | Annotated[tuple[StepName, ...], _EACH_STEP] = knob(
        "canonical", "Order of the steps: a name, or a list; a step left out is off.",
        group="order", off="canonical",
    )
    temperature_last: bool = knob(
        False, "Move the temperature behind the filters, so that they see the model's own odds.",
        group="order", off=False,
    )

    backtrack: bool = knob(
        False, "Take back a loop or a long silence while decoding, and go on from where it began.",
        group="backtrack", off=False,
    )
    backtrack_max_period: int = knob(
        75, "Longest sequence of codes whose repetition counts as a loop.",
        group="backtrack", unit="frames", step=1, top=150, ge=1,
    )
    backtrack_min_repeats: int = knob(
        4, "How many copies of a sequence in a row make a loop.",
        group="backtrack", step=1, top=16, ge=2,
    )
    backtrack_min_frames: int = knob(
        30, "How long a loop must be, all copies together.",
        group="backtrack", unit="frames", step=1, top=150, ge=2,
    )
    backtrack_max_silence: int = knob(
        150, "Longest silence; a longer one is taken back. 0 allows any.",
        group="backtrack", off=0, unit="frames", step=1, top=750, ge=0,
    )
    backtrack_window: int = knob(
        75, "A frame is final once this many newer ones exist; a loop that lies deeper ends the "
        "utterance as stuck.",
        group="backtrack", unit="frames", step=1, top=750, ge=1,
    )
    backtrack_budget: int = knob(
        8, "How often an utterance may be taken back before it is ended as stuck.",
        group="backtrack", off=0, step=1, top=32, ge=0,
    )
    backtrack_factor: float = knob(
        0.1, "What the odds of the code that led into a loop are multiplied by in its place, each "
        "time it does so; the second time it is forbidden there.",
        group="backtrack", off=1.0, step=0.05, gt=0.0, le=1.0,
    )
    backtrack_strength: float = knob(
        1.0, "Exponent on backtrack_factor; 100 or more forbids the code at once.",
        group="backtrack", off=0.0, step=0.5, top=100.0, ge=0.0,
    )

    nar_levels: int = knob(
        7, "At most this many finer levels are drawn; fewer are quicker and sound rougher.",
        group="nar", off=7, unit="levels", step=1, ge=0, le=31,
    )
    nar_decision: NarDecision = knob(
        "likeliest",
        "What a greedy finer level takes: the `likeliest` code, or the one nearest the `mean` of "
        "the codebook by its odds, which blurs what it does not know instead of guessing.",
        group="nar", off="likeliest",
    )
    nar_temperature: float = knob(
        0.0, "Temperature of the finer codebook levels; 0 or less is greedy.",
        group="nar", off=0.0, step=0.05, top=2.0, ge=-1.0,
    )
    nar_level_temperatures: tuple[float, ...] = knob(
        (), "Temperatures of level 1, 2, ...; levels past the end use nar_temperature.",
        group="nar", off=[], max_length=32, fail_fast=True,
    )
    nar_top_k: int = knob(
        0, "As top_k, for the finer levels.",
        group="nar", off=0, step=1, top=1024, ge=-1,
    )
    nar_top_p: float = knob(
        1.0, "As top_p, for the finer levels.",
        group="nar", off=1.0, step=0.01, ge=0.0, le=1.0,
    )
    nar_min_p: float = knob(
        0.0, "As min_p, for the finer levels.",
        group="nar", off=0.0, step=0.01, ge=0.0, le=1.0,
    )
    nar_cfg_strength: float = knob(
        1.0, "As cfg_strength, for the finer levels; doubles their work.",
        group="nar", off=1.0, step=0.1, top=4.0, ge=1.0,
    )
    nar_cfg_rescale: float = knob(
        0.7, "As cfg_rescale, for the finer levels, each frame by itself.",
        group="nar", off=0.0, step=0.05, ge=0.0, le=1.0,
    )
    nar_window_frames: int = knob(
        0, "Where all frames of the finer levels see each other: draw so many at a time, to be "
        "heard before the utterance ends; 0 draws the whole, as the model was trained.",
        group="nar", off=0, unit="frames", step=15, top=300, ge=0,
    )
    nar_left_context_frames: int = knob(
        75, "Frames before a window that its passes see.",
        group="nar", unit="frames", step=15, top=300, ge=0,
    )
    nar_lookahead_frames: int = knob(
        15, "Frames after a window that its passes see; the window waits for them.",
        group="nar", unit="frames", step=5, top=150, ge=0,
    )

    context_utterances: int = knob(
        0, "How many of the utterances before the AR reads again, text and codes, to go on in "
        "their tone; slower by their length.",
        group="context", off=0, unit="utterances", step=1, ge=0, le=8,
    )
    prompt_as_prefix: bool = knob(
        False, "The AR takes the voice's prompt for the beginning of what it says, not for an "
        "example of the voice.",
        group="context", off=False,
    )
    pause_s: float = knob(
        0.25, "Silence between two utterances where the text asks for none in particular; changes "
        "no code.",
        group="joining", off=0.0, unit="s", step=0.05, top=2.0, ge=0.0, le=10.0,
    )
    # fmt: on

    @field_validator("top_k", "nar_top_k", "top_n_sigma")
    @classmethod
    def _one_off_value(cls, value: float) -> float:
        return max(value, 0)

    @field_validator("min_temperature")
    @classmethod
    def _off_below_zero(cls, temperature: float) -> float:
        return temperature if temperature >= 0 else -1.0

    @field_validator("sampler_order")
    @classmethod
    def _each_once(
        cls, order: OrderName | tuple[StepName, ...]
    ) -> OrderName | tuple[StepName, ...]:
        if not isinstance(order, str) and len(set(order)) < len(order):
            raise ValueError("a step may stand in the order only once")
        return order

    @field_validator("nar_level_temperatures")
    @classmethod
    def _bounded(cls, temperatures: tuple[float, ...]) -> tuple[float, ...]:
        if any(temperature < -1 for temperature in temperatures):
            raise ValueError("every temperature must be at least -1")
        return temperatures


# Pydantic takes the fields of the last base first: entropix's, of which there are many, come last.
class SamplingParams(EntropixKnobs, MaskedKnobs, CandidateKnobs, _Flat):
    """How codes are drawn and utterances joined: every knob there is."""


def off_value(name: str) -> Any:
    """The value at which a knob does nothing, as its declaration states it."""
    extra = SamplingParams.model_fields[name].json_schema_extra
    assert isinstance(extra, dict)
    ui = extra["x-ui"]
    assert isinstance(ui, dict)
    return ui["off"]


def resolve(
    params: SamplingParams,
    card_preset: str | Mapping[str, Any] = "default",
    presets: Presets = PRESETS,
) -> SamplingParams:
    """Give every knob its value: what the caller set > the preset > the declared default.

    A knob that the caller set switches off a conflicting knob of the preset.

    Args:
        params: What the caller sent; a subclass (a request) is accepted, its other fields ignored.
        card_preset: What `preset="auto"` means: the preset that the loaded model's card names, or
            the card's own set of knobs.
        presets: Those that can be named.

    Returns:
        A plain `SamplingParams` with every knob set, the preset named and the seed drawn.

    Raises:
        ConflictError: Two knobs that the caller set contradict each other; it names them.
        UnknownPreset: The caller or the card names a preset that is not there.
        ValueError: A preset holds an illegal value.
    """
    knobs = SamplingParams.model_fields
    chosen = {name: getattr(params, name) for name in knobs if name in params.model_fields_set}
    source = card_preset if params.preset == AUTO else params.preset
    base = look_up(source, presets) if isinstance(source, str) else source
    named = source if isinstance(source, str) else AUTO
    merged = SamplingParams.model_validate({**base, **chosen, "preset": named})
    values = {name: getattr(merged, name) for name in knobs}
    losers = settle(merged, chosen=chosen.keys())
    values |= {name: off_value(name) for name in losers}
    if values["seed"] is None:
        values["seed"] = secrets.randbits(32)  # short enough to type
    resolved = SamplingParams.model_validate(values)
    settle(resolved, chosen=knobs.keys())  # giving way may not be enough
    return resolved
