"""The one declaration of every sampling knob: name, type, bounds, default, off value, one sentence.

The OpenAPI schema, the 422 messages, the command line's flags, the table in the docs and the
batch's tensors are all made from `SamplingParams`. Its knobs are declared here, in `steps` and in
`entropix`; nothing else may give a knob a default (`tests/samplers/knobs/test_single_source.py`
walks the source). Loads without torch.

Each knob's JSON schema has `x-ui`, the hints of `samplers.knobs.knob.knob`.
"""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, field_validator

from samplers.knobs.conditions import numbers_up_to
from samplers.knobs.entropix import EntropixKnobs
from samplers.knobs.knob import KnobSet, Needs, knob
from samplers.knobs.presets import AUTO
from samplers.knobs.steps import MOST_CODES, STEPS, OrderName, StepKnobs, StepName

_EACH_STEP = Field(max_length=len(STEPS), fail_fast=True, json_schema_extra={"uniqueItems": True})


_CODE_NAMES = WithJsonSchema({
    "type": "object",
    "additionalProperties": {"type": "number"},
    "propertyNames": {"pattern": numbers_up_to(MOST_CODES)},
})


class BannedSequence(KnobSet):
    """Codes that must not follow one another."""

    codes: tuple[int, ...] = Field(
        min_length=1, max_length=75, fail_fast=True, description="The sequence, first code first."
    )
    strength: float = Field(
        default=100.0,
        ge=0.0,
        description="Nats taken from the code that would complete it; 100 or more forbids it.",
    )


class RequestKnobs(KnobSet):
    """Preset and seed, guidance, bans and minimum length."""

    # fmt: off
    preset: str = knob(
        AUTO,
        "Named set of knobs to start from; `auto` is the one named in the loaded model's card.",
        group="request", max_length=100,
    )
    seed: int | None = knob(
        None,
        "Seed of every random choice; the same request with the same seed gives the same codes. "
        "Without one a seed is chosen and reported.",
        group="request", ge=0, le=2**63 - 1,
        label="Seed",
        synonyms="reproducible deterministic same random",
    )

    cfg_strength: float = knob(
        1.0, "Guidance: how far to go from what the model says without the words towards what it "
        "says with them, and beyond; doubles the work.",
        group="guidance", off=1.0, step=0.1, top=4.0, ge=1.0,
        label="Closeness to the text", values=(1.0, 1.5, 2.0, 3.0),
        synonyms="adherence faithful accurate skipped words hallucination",
    )
    cfg_rescale: float = knob(
        0.7, "How much of the guided logits' spread is set back to that without guidance.",
        group="guidance", off=0.0, step=0.05, ge=0.0, le=1.0,
        needs=({"cfg_strength": ()},),
    )
    logit_bias: Annotated[dict[int, float], _CODE_NAMES] = knob(
        {}, "Code id to a value added to its logit; -100 as good as bans it.",
        group="bans", off={}, unit="nats", max_length=MOST_CODES,
    )
    ban_tokens: tuple[int, ...] = knob(
        (), "Code ids that are never sampled; ids outside the codebook have no effect.",
        group="bans", off=[], max_length=MOST_CODES, fail_fast=True,
    )
    ban_sequences: tuple[BannedSequence, ...] = knob(
        (), "Sequences of codes whose last code is punished when the others were just sampled. "
        "With backtrack, one that was completed all the same is taken back to its first code.",
        group="bans", off=[], max_length=64, fail_fast=True,
    )
    min_frames: int = knob(
        0, "Speech cannot end before this many frames.",
        group="length", off=0, unit="frames", step=1, top=90, ge=0,
        synonyms="early ending cut",
    )
    alignment_stop_frames: int = knob(
        0, "An utterance whose alignment has been at the end of its text for this many frames is "
        "ended: it then says nothing again. 0 leaves the end to the stop. It takes an alignment "
        "head.",
        group="length", off=0, unit="frames", step=1, slider=False, top=75, ge=0,
        values=(0, 16, 24, 32),
    )
    text_lookahead_words: int = knob(
        0, "Frames are drawn from the words up to this many behind the one that is spoken, and "
        "from none further on: so speech begins, and sounds the same, before the sentence is "
        "written. 0 waits for whole sentences. It takes an alignment head.",
        group="context", off=0, unit="words", step=1, slider=False, ge=0, le=8,
        values=(0, 1, 2, 3),
        synonyms="early latency streaming incremental token by token first sound",
    )
    # fmt: on


_mirostat = partial(knob, group="mirostat", needs=({"mirostat_mode": ()},))
_ras = partial(knob, group="ras", needs=({"ras": ()},))
_backtrack = partial(knob, group="backtrack", needs=({"backtrack": ()},))
_stuck = partial(
    _backtrack, needs=({"backtrack": (), "best_of": (), "entropix_action": ("branch",)},)
)


class SamplingKnobs(KnobSet):
    """How a code is sampled from the scores, the order of the steps, and backtracking."""

    # fmt: off
    mirostat_mode: Literal[0, 1, 2] = knob(
        0, "Version of mirostat, which steers the surprise of what is sampled; 0 is off.",
        group="mirostat", off=0,
    )
    mirostat_tau: float = _mirostat(
        1.2, "Surprise that mirostat aims at, below the model's mean entropy, or it keeps every "
        "code; 0 is off.",
        off=0.0, unit="bits", step=0.1, top=2.0, ge=0.0,
        values=(0.8, 1.0, 1.2, 1.5),
    )
    mirostat_eta: float = _mirostat(
        0.1, "How quickly mirostat corrects itself.",
        step=0.05, top=1.0, gt=0.0,
    )
    mirostat_surprise: Literal["full", "truncated"] = _mirostat(
        "full", "Surprise under all codes (the paper), or under those kept (llama.cpp).",
    )
    ras: bool = knob(
        False, "Repetition-aware sampling: a code sampled again too soon is sampled anew from all.",
        group="ras", off=False,
    )
    ras_top_p: float = _ras(
        0.8, "RAS: the first sample is from the likeliest codes that sum to this.",
        step=0.01, ge=0.0, le=1.0,
    )
    ras_top_k: int = _ras(
        25, "RAS: the first sample is from this many codes at most.",
        step=1, top=8, ge=1,
    )
    ras_window: int = _ras(
        10, "RAS: how many of the newest codes a sampled code is looked for in.",
        unit="frames", step=1, top=75, ge=1,
    )
    ras_tau: float = _ras(
        0.1, "RAS: the share of that window from which a code is repeated too often.",
        step=0.05, top=0.6, gt=0.0, le=1.0,
    )
    ras_mask_first: bool = _ras(
        True, "RAS: the second sample excludes the code of the first, which breaks loops for sure.",
        off=False,
    )
    sampler_order: OrderName | Annotated[tuple[StepName, ...], _EACH_STEP] = knob(
        "canonical", "Order of the steps: a name, or a list; a step left out is off.",
        group="order", off="canonical",
    )
    temperature_last: bool = knob(
        False, "Move the temperature behind the filters, so that they see the model's own odds.",
        group="order", off=False,
        needs=({"temperature": (), "min_temperature": (), "entropix": ()},),
    )

    backtrack: bool = knob(
        False, "Remove loops and long silences while decoding, and sample again where they began.",
        group="backtrack", off=False,
        synonyms="stuck stutter hang hallucination babble repeat",
    )
    backtrack_max_period: int = _stuck(
        75, "Longest sequence of codes whose repetition counts as a loop.",
        unit="frames", step=1, slider=False, top=150, ge=1,
    )
    backtrack_min_repeats: int = _stuck(
        4, "How many copies of a sequence in a row make a loop.",
        step=1, slider=False, top=16, ge=2,
    )
    backtrack_min_frames: int = _stuck(
        30, "How long a loop must be, all copies together.",
        unit="frames", step=1, slider=False, top=150, ge=2,
    )
    backtrack_max_silence: int = _stuck(
        150, "Longest silence; a longer one is taken back. 0 allows any.",
        off=0, unit="frames", step=1, slider=False, top=750, ge=0,
        values=(0, 25, 50, 75),
    )
    backtrack_repeat_frames: int = _backtrack(
        0, "Words that are said again are taken back once this many frames clearly speak what "
        "was said before. It takes an alignment head; 0 lets them stand.",
        off=0, unit="frames", step=1, slider=False, top=30, ge=0,
        values=(0, 5, 10),
    )
    backtrack_window: int = _backtrack(
        75, "A frame is final once this many newer ones exist; a loop that lies deeper ends the "
        "utterance as stuck.",
        unit="frames", step=1, slider=False, top=750, ge=1,
    )
    backtrack_share: float = _backtrack(
        1.0, "At most this share of the frames so far is taken back. The beginning of an utterance "
        "is then final, and can be heard, sooner. A loop that lies deeper is taken back in part.",
        off=1.0, step=0.05, slider=False, gt=0.0, le=1.0,
    )
    backtrack_budget: int = _backtrack(
        8, "How often an utterance may be taken back before it is ended as stuck.",
        off=0, step=1, slider=False, top=32, ge=0,
    )
    backtrack_factor: float = _backtrack(
        0.1, "What the odds of the code that led into a loop are multiplied by in its place, each "
        "time it does so. The second time it is forbidden there.",
        off=1.0, step=0.05, slider=False, gt=0.0, le=1.0,
    )
    backtrack_strength: float = _backtrack(
        1.0, "Exponent on backtrack_factor; 100 or more forbids the code at once.",
        off=0.0, step=0.5, slider=False, top=100.0, ge=0.0,
    )
    # fmt: on

    @field_validator("sampler_order")
    @classmethod
    def _each_once(
        cls, order: OrderName | tuple[StepName, ...]
    ) -> OrderName | tuple[StepName, ...]:
        if not isinstance(order, str) and len(set(order)) < len(order):
            raise ValueError("a step may stand in the order only once")
        return order


_sampled_nar = partial(
    knob, group="nar", needs=({"nar_temperature": (), "nar_level_temperatures": ()},)
)
_window = partial(knob, group="nar", needs=({"nar_window_frames": ()},))


class NarKnobs(KnobSet):
    """How the NAR levels are sampled and guided, and in which windows."""

    # fmt: off
    nar_levels: int = knob(
        7, "At most this many NAR levels are sampled; fewer are quicker and sound rougher.",
        group="nar", off=7, unit="levels", step=1, slider=False, top=7, ge=0, le=31,
        synonyms="quality rough quick",
    )
    nar_decision: Literal["likeliest", "mean"] = knob(
        "likeliest",
        "What a greedy NAR level takes: the `likeliest` code, or the one nearest the `mean` of "
        "the codebook by its odds. The mean blurs what it does not know instead of guessing.",
        group="nar", off="likeliest",
    )
    nar_temperature: float = knob(
        0.0, "Temperature of the NAR levels; 0 or less is greedy.",
        group="nar", off=0.0, step=0.05, bottom=0.0, top=2.0, ge=-1.0,
        values=(0.0, 0.3, 0.6),
    )
    nar_level_temperatures: tuple[Annotated[float, Field(ge=-1.0)], ...] = knob(
        (), "Temperatures of level 1, 2, ...; levels past the end use nar_temperature.",
        group="nar", off=[], max_length=32, fail_fast=True,
    )
    nar_top_k: int = _sampled_nar(
        0, "As top_k, for the NAR levels.",
        off=0, step=1, bottom=1, top=50, ge=-1,
    )
    nar_top_p: float = _sampled_nar(
        1.0, "As top_p, for the NAR levels.",
        off=1.0, step=0.01, ge=0.0, le=1.0,
    )
    nar_min_p: float = _sampled_nar(
        0.0, "As min_p, for the NAR levels.",
        off=0.0, step=0.01, ge=0.0, le=1.0,
    )
    nar_cfg_strength: float = knob(
        1.0, "As cfg_strength, for the NAR levels; doubles their work.",
        group="nar", off=1.0, step=0.1, top=4.0, ge=1.0,
    )
    nar_cfg_rescale: float = knob(
        0.7, "As cfg_rescale, for the NAR levels, each frame by itself.",
        group="nar", off=0.0, step=0.05, ge=0.0, le=1.0,
        needs=(
            {"nar_cfg_strength": ()},
            {"nar_temperature": (), "nar_level_temperatures": (), "nar_decision": ("mean",)},
        ),
    )
    nar_window_frames: int = knob(
        0, "Where all frames of the NAR levels see each other: sample so many at a time, to be "
        "sent before the utterance ends. 0 samples the whole, as the model was trained.",
        group="nar", off=0, unit="frames", step=15, slider=False, top=300, ge=0,
    )
    nar_left_context_frames: int = _window(
        75, "Frames before a window that its passes see.",
        unit="frames", step=15, slider=False, top=300, ge=0,
    )
    nar_lookahead_frames: int = _window(
        15, "Frames after a window that its passes see; the window waits for them.",
        unit="frames", step=5, slider=False, top=150, ge=0,
    )
    # fmt: on

    @field_validator("nar_top_k")
    @classmethod
    def _negative_nar_top_k_is_off(cls, count: int) -> int:
        return max(count, 0)


class JoiningKnobs(KnobSet):
    """What an utterance continues from, and the pause between two."""

    # fmt: off
    context_utterances: int = knob(
        0, "How many preceding utterances the AR is conditioned on, text and codes, to keep "
        "their tone; slower by their length. The oldest are left out where all would be too long.",
        group="context", off=0, unit="utterances", step=1, slider=False, ge=0, le=8,
        synonyms="consistent prosody intonation",
    )
    prompt_as_prefix: bool = knob(
        False, "The AR continues the voice's prompt as the beginning of the utterance, instead of "
        "reading it as an example of the voice.",
        group="context", off=False,
    )
    pause_s: float = knob(
        0.25, "Silence between two utterances where the text asks for none in particular; changes "
        "no code.",
        group="joining", off=0.0, unit="s", step=0.05, top=2.0, ge=0.0, le=10.0,
        label="Pauses", values=(0.0, 0.2, 0.4, 0.8),
        synonyms="silence gap break",
    )
    # fmt: on


_RANKS: Needs = ({"best_of": (), "entropix_action": ("branch",)},)


def _penalty(default: float, description: str, needs: Needs = _RANKS) -> Any:
    return knob(
        default, description,
        group="candidates", off=0.0, unit="nats", step=0.1, top=10.0, slider=False,
        ge=0.0, le=100.0, needs=needs,
    )  # fmt: skip


class CandidateKnobs(KnobSet):
    """How many sequences of an utterance are sampled, and which is kept."""

    # fmt: off
    best_of: int = knob(
        1,
        "How many takes of each utterance are sampled in parallel, each with its own noise. The "
        "best is kept: first those that spoke to their stop, then by rank. No audio is sent "
        "before all have ended, and each needs a row.",
        group="candidates", off=1, step=1, ge=1, le=8,
        values=(1, 2, 4),
        synonyms="quality better retry candidates",
    )
    beam_width: int = knob(
        0,
        "Beam search over this many beams instead of random samples; 1 is greedy, 0 is off. No "
        "audio is sent before the search has ended, and each beam needs a row.",
        group="candidates", off=0, step=1, slider=False, ge=0, le=8,
    )
    beam_length_power: float = knob(
        1.0,
        "Finished beams are ranked by the log-probability of their codes, stop included, over "
        "the power of their number that this is; 0 favours short ones.",
        group="candidates", off=0.0, step=0.05, slider=False, ge=0.0, le=2.0,
        needs=({"beam_width": ()},),
    )
    rank_alignment_weight: float = knob(
        16.0,
        "Takes are ranked by the mean log-probability of their codes, plus this times how well "
        "they follow the text, from 0 to 1. An alignment head tells that; without one it is 0.",
        group="candidates", off=0.0, unit="nats", step=1.0, top=32.0, ge=0.0, le=100.0,
        needs=({"best_of": ()},),
    )
    rank_loop_penalty: float = _penalty(
        2.0,
        "Less this times the share of frames that only repeat a loop, as the backtrack_ knobs "
        "define one.",
    )
    rank_silence_penalty: float = _penalty(
        2.0, "Less this times the share of frames in silences, beyond backtrack_max_silence each.",
    )
    rank_length_penalty: float = _penalty(
        0.5,
        "Less this times the distance of the logarithm of a take's length from the median's; "
        "with best_of alone.",
        ({"best_of": ()},),
    )
    # fmt: on


_masked = partial(knob, group="masked", needs=({"level_0": ()},))


class MaskedKnobs(KnobSet):
    """How level 0 is sampled, and the masked passes, which some public models can.

    The defaults are those of e-c-k-e-r/vall-e except for what is scored: as MaskGIT
    (arXiv:2202.04200), the code sampled; preset `vall_e` is as the reference.
    """

    # fmt: off
    level_0: Literal["ar", "masked", "auto"] = knob(
        "ar",
        "How level 0 is sampled: `ar` code by code, `masked` in passes over all frames, or `auto`: "
        "masked where the model can, unless a knob is moved that only `ar` heeds.",
        group="masked", off="ar",
    )
    nar_len_steps: int = _masked(
        25, "Passes over all frames; more are slower and more careful.",
        unit="passes", step=1, top=100, ge=1, le=1000,
    )
    nar_len_frames: int = _masked(
        0, "Length of each utterance; 0 lets the model choose.",
        off=0, unit="frames", step=1, top=1500, ge=0,
    )
    nar_len_min_frames: int = knob(
        75, "The least length that the model may choose.",
        group="masked", off=1, unit="frames", step=1, top=750, ge=1,
        needs=({"level_0": ()}, {"nar_len_frames": (0,)}),
    )
    nar_len_stretch: float = knob(
        1.05, "Factor on the length that the model chooses.",
        group="masked", off=1.0, step=0.05, top=2.0, gt=0.0, le=10.0,
        needs=({"level_0": ()}, {"nar_len_frames": (0,)}),
    )
    nar_len_cfg_strength: float = _masked(
        2.5, "As cfg_strength, for the masked passes.",
        off=1.0, step=0.1, top=4.0, ge=1.0,
    )
    nar_len_cfg_rescale: float = knob(
        0.75, "As cfg_rescale, for the masked passes; one spread over all frames.",
        group="masked", off=0.0, step=0.05, ge=0.0, le=1.0,
        needs=({"nar_len_cfg_strength": ()},),
    )
    nar_len_temperature: float = _masked(
        0.0, "Temperature of the first masked pass, falling to 0 in the last; 0 or less is greedy.",
        off=0.0, step=0.05, bottom=0.0, top=2.0, ge=-1.0,
    )
    nar_len_top_k: int = _masked(
        0, "As top_k, for the masked passes; 0 or -1 keeps all.",
        off=0, step=1, bottom=1, top=50, ge=-1,
    )
    nar_len_top_p: float = _masked(
        1.0, "As top_p, for the masked passes.",
        off=1.0, step=0.01, ge=0.0, le=1.0,
    )
    nar_len_min_p: float = _masked(
        0.0, "As min_p, for the masked passes.",
        off=0.0, step=0.01, ge=0.0, le=1.0,
    )
    nar_len_score: Literal["drawn", "likeliest"] = _masked(
        "drawn",
        "By what the least certain frames, which are masked again, are told: the model's odds of "
        "the `drawn` code, or of the `likeliest` after truncation (as the reference).",
    )
    nar_len_masked_only: bool = _masked(
        True, "A frame that was sampled once stays; off: any frame may be masked again.",
    )
    nar_len_remask: bool = _masked(
        False, "Mask slightly more frames in each pass: half a pass's share of all.",
        off=False,
    )
    # fmt: on


# Pydantic takes the fields of the last base first: the list is the reverse of the fields' order.
class SamplingParams(
    EntropixKnobs, MaskedKnobs, CandidateKnobs, JoiningKnobs, NarKnobs, SamplingKnobs, StepKnobs,
    RequestKnobs,
):  # fmt: skip
    """How codes are sampled and utterances joined: every knob there is."""


def off_value(name: str) -> Any:
    """Return the value at which a knob has no effect, as declared."""
    return hints(name)["off"]


def hints(name: str) -> dict[str, Any]:
    """The ``x-ui`` hints of a knob, by its name."""
    extra = SamplingParams.model_fields[name].json_schema_extra
    assert isinstance(extra, dict)
    ui = extra["x-ui"]
    assert isinstance(ui, dict)
    return ui
