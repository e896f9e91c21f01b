"""The knobs of the finer codebook levels, which `samplers.nar` reads. Loads without torch."""

from typing import Literal

from pydantic import field_validator

from samplers.knobs.knob import KnobSet, knob

NarDecision = Literal["likeliest", "mean"]


class NarKnobs(KnobSet):
    """How the finer levels are sampled and guided, and in which windows."""

    # fmt: off
    nar_levels: int = knob(
        7, "At most this many finer levels are drawn; fewer are quicker and sound rougher.",
        group="nar", off=7, unit="levels", step=1, slider=False, top=7, ge=0, le=31,
    )
    nar_decision: NarDecision = knob(
        "likeliest",
        "What a greedy finer level takes: the `likeliest` code, or the one nearest the `mean` of "
        "the codebook by its odds, which blurs what it does not know instead of guessing.",
        group="nar", off="likeliest",
    )
    nar_temperature: float = knob(
        0.0, "Temperature of the finer codebook levels; 0 or less is greedy.",
        group="nar", off=0.0, step=0.05, bottom=0.0, top=2.0, ge=-1.0,
        values=(0.0, 0.3, 0.6),
    )
    nar_level_temperatures: tuple[float, ...] = knob(
        (), "Temperatures of level 1, 2, ...; levels past the end use nar_temperature.",
        group="nar", off=[], max_length=32, fail_fast=True,
    )
    nar_top_k: int = knob(
        0, "As top_k, for the finer levels.",
        group="nar", off=0, step=1, bottom=1, top=50, ge=-1,
        needs=({"nar_temperature": (), "nar_level_temperatures": ()},),
    )
    nar_top_p: float = knob(
        1.0, "As top_p, for the finer levels.",
        group="nar", off=1.0, step=0.01, ge=0.0, le=1.0,
        needs=({"nar_temperature": (), "nar_level_temperatures": ()},),
    )
    nar_min_p: float = knob(
        0.0, "As min_p, for the finer levels.",
        group="nar", off=0.0, step=0.01, ge=0.0, le=1.0,
        needs=({"nar_temperature": (), "nar_level_temperatures": ()},),
    )
    nar_cfg_strength: float = knob(
        1.0, "As cfg_strength, for the finer levels; doubles their work.",
        group="nar", off=1.0, step=0.1, top=4.0, ge=1.0,
    )
    nar_cfg_rescale: float = knob(
        0.7, "As cfg_rescale, for the finer levels, each frame by itself.",
        group="nar", off=0.0, step=0.05, ge=0.0, le=1.0,
        needs=(
            {"nar_cfg_strength": ()},
            {"nar_temperature": (), "nar_level_temperatures": (), "nar_decision": ("mean",)},
        ),
    )
    nar_window_frames: int = knob(
        0, "Where all frames of the finer levels see each other: draw so many at a time, to be "
        "sent before the utterance ends; 0 draws the whole, as the model was trained.",
        group="nar", off=0, unit="frames", step=15, slider=False, top=300, ge=0,
    )
    nar_left_context_frames: int = knob(
        75, "Frames before a window that its passes see.",
        group="nar", unit="frames", step=15, slider=False, top=300, ge=0,
        needs=({"nar_window_frames": ()},),
    )
    nar_lookahead_frames: int = knob(
        15, "Frames after a window that its passes see; the window waits for them.",
        group="nar", unit="frames", step=5, slider=False, top=150, ge=0,
        needs=({"nar_window_frames": ()},),
    )
    # fmt: on

    @field_validator("nar_top_k")
    @classmethod
    def _negative_nar_top_k_is_off(cls, count: int) -> int:
        return max(count, 0)

    @field_validator("nar_level_temperatures")
    @classmethod
    def _bounded_temperatures(cls, temperatures: tuple[float, ...]) -> tuple[float, ...]:
        if any(temperature < -1 for temperature in temperatures):
            raise ValueError("every temperature must be at least -1")
        return temperatures
