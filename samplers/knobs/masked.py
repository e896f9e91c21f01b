"""The knobs of level 0 drawn in masked passes, which some public models can. Torch-free.

The defaults are those of e-c-k-e-r/vall-e except for what is scored: as MaskGIT (arXiv:2202.04200),
the code drawn; preset `vall_e` is as the reference.
"""

from typing import Literal

from samplers.knobs.knob import KnobSet, knob

Level0 = Literal["ar", "masked", "auto"]
MaskedScore = Literal["drawn", "likeliest"]


class MaskedKnobs(KnobSet):
    """How level 0 is drawn, and the masked passes."""

    # fmt: off
    level_0: Level0 = knob(
        "ar",
        "How level 0 is drawn: `ar` code by code, `masked` in passes over all frames, or `auto`: "
        "masked where the model can, unless the caller moved a knob that only `ar` heeds.",
        group="masked", off="ar",
    )
    nar_len_steps: int = knob(
        25, "Passes over all frames; more are slower and more careful.",
        group="masked", unit="passes", step=1, top=100, ge=1, le=1000,
        needs=({"level_0": ()},),
    )
    nar_len_frames: int = knob(
        0, "Length of each utterance; 0 lets the model choose.",
        group="masked", off=0, unit="frames", step=1, top=1500, ge=0,
        needs=({"level_0": ()},),
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
    nar_len_cfg_strength: float = knob(
        2.5, "As cfg_strength, for the masked passes.",
        group="masked", off=1.0, step=0.1, top=4.0, ge=1.0,
        needs=({"level_0": ()},),
    )
    nar_len_cfg_rescale: float = knob(
        0.75, "As cfg_rescale, for the masked passes; one spread over all frames.",
        group="masked", off=0.0, step=0.05, ge=0.0, le=1.0,
        needs=({"nar_len_cfg_strength": ()},),
    )
    nar_len_temperature: float = knob(
        0.0, "Temperature of the first masked pass, falling to 0 in the last; 0 or less is greedy.",
        group="masked", off=0.0, step=0.05, bottom=0.0, top=2.0, ge=-1.0,
        needs=({"level_0": ()},),
    )
    nar_len_top_k: int = knob(
        0, "As top_k, for the masked passes; 0 or -1 keeps all.",
        group="masked", off=0, step=1, bottom=1, top=50, ge=-1,
        needs=({"level_0": ()},),
    )
    nar_len_top_p: float = knob(
        1.0, "As top_p, for the masked passes.",
        group="masked", off=1.0, step=0.01, ge=0.0, le=1.0,
        needs=({"level_0": ()},),
    )
    nar_len_min_p: float = knob(
        0.0, "As min_p, for the masked passes.",
        group="masked", off=0.0, step=0.01, ge=0.0, le=1.0,
        needs=({"level_0": ()},),
    )
    nar_len_score: MaskedScore = knob(
        "drawn",
        "By what frames are masked again, the least certain first: the model's odds of the code "
        "that was `drawn`, or those of the `likeliest` code after truncation (as the reference).",
        group="masked",
        needs=({"level_0": ()},),
    )
    nar_len_masked_only: bool = knob(
        True, "A frame that was drawn once stays; off: any frame may be masked again.",
        group="masked",
        needs=({"level_0": ()},),
    )
    nar_len_remask: bool = knob(
        False, "Mask slightly more frames in each pass: half a pass's share of all.",
        group="masked", off=False,
        needs=({"level_0": ()},),
    )
    # fmt: on
