"""The knobs of entropix: thresholds of its five states, and their coefficients. Torch-free.

The defaults are those of a text model, as the author of entropix described them: thresholds must be
measured for each model.

H and V are the entropy (bits) and varentropy (bits²) of a code before temperature and filters. In a
formula, T, p, k and m are the row's own temperature, top_p, top_k (all codes where it is off) and
min_p; *ae*, *av*, *ag* and *is* the four attention statistics: entropy, varentropy, agreement and
interaction strength.
"""

from functools import partial
from typing import Literal

from samplers.knobs.knob import KnobSet, Needs, knob

_ON: Needs = ({"entropix": ()},)
_HEATS: Needs = ({"entropix_action": ("temperature", "pause")},)
_PAUSES: Needs = ({"entropix_action": ("pause",)},)
_BRANCHES: Needs = ({"entropix_action": ("branch",)},)


_entropix = partial(knob, group="entropix")
_threshold = partial(_entropix, step=0.1, top=10.0, slider=False, ge=0.0, needs=_ON)
_weight = partial(_entropix, off=0.0, step=0.05, slider=False, ge=-10.0, le=10.0, needs=_ON)
_factor = partial(_entropix, step=0.05, slider=False, ge=0.0, le=10.0, needs=_ON)
_share = partial(_entropix, step=0.01, slider=False, ge=0.0, le=1.0, needs=_ON)
_count = partial(_entropix, step=1, slider=False, ge=1, needs=_ON)


class EntropixKnobs(KnobSet):
    """Entropix: entropy and varentropy move a row's temperature, top_p, top_k and min_p."""

    # fmt: off
    entropix: bool = knob(
        False,
        "Entropix: the entropy H and varentropy V of each code choose one of five states, which "
        "move temperature, top_p, top_k and min_p. The model's attention says by how much. Where a "
        "floor is above its ceiling the ceiling holds.",
        group="entropix", off=False,
    )
    entropix_action: Literal["temperature", "resample", "pause", "branch"] = knob(
        "temperature",
        "What the state HELV does where a text model would ask: `temperature` heats the row, "
        "`resample` sets the code that is sampled aside and samples another (in HEHV too). `pause` "
        "puts in a frame of silence, or heats where there may be none. `branch` samples several "
        "continuations (in LEHV too) and keeps the best, or samples as usual where it just did.",
        group="entropix", off="temperature", needs=_ON,
    )

    entropix_low_entropy: float = _threshold(
        0.1, "H below this, V below entropix_low_varentropy: LELV, the likeliest code.", unit="bits"
    )
    entropix_low_varentropy: float = _threshold(
        0.1, "V below this is low, for LELV and HELV.", unit="bits²"
    )
    entropix_helv_entropy: float = _threshold(
        3.0, "H above this, V below entropix_low_varentropy: HELV, entropix_action.", unit="bits"
    )
    entropix_lehv_entropy: float = _threshold(
        5.0, "H below this, V above entropix_high_varentropy: LEHV, warmer and wider.", unit="bits"
    )
    entropix_hehv_entropy: float = _threshold(
        5.0, "H above this, V above entropix_high_varentropy: HEHV, hot and narrow. All else is "
        "the adaptive state.", unit="bits",
    )
    entropix_high_varentropy: float = _threshold(
        5.0, "V above this is high, for LEHV and HEHV.", unit="bits²"
    )

    entropix_helv_temperature: float = _factor(
        1.3, "HELV: the temperature is T times (this + entropix_helv_attention_entropy ae).",
        needs=_HEATS,
    )
    entropix_helv_attention_entropy: float = _weight(
        0.2, "HELV: what the attention's entropy adds to that factor.", needs=_HEATS
    )
    entropix_helv_temperature_ceiling: float = _factor(
        1.5, "HELV: the highest temperature.", needs=_HEATS
    )

    entropix_lehv_temperature: float = _factor(
        1.2, "LEHV: the temperature is T times (this + entropix_lehv_strength is)."
    )
    entropix_lehv_strength: float = _weight(
        0.3, "LEHV: what the attention's interaction strength adds to that factor."
    )
    entropix_lehv_temperature_ceiling: float = _factor(1.5, "LEHV: the highest temperature.")
    entropix_lehv_top_k_agreement: float = _weight(
        0.5, "LEHV: top_k is k (1 + this (1 - ag)), rounded down."
    )
    entropix_lehv_top_k_floor: int = _count(5, "LEHV: the lowest top_k.", le=2**31 - 1)

    entropix_hehv_temperature: float = _factor(
        2.0, "HEHV: the temperature is T times (this + entropix_hehv_attention_varentropy av)."
    )
    entropix_hehv_attention_varentropy: float = _weight(
        0.5, "HEHV: what the attention's varentropy adds to that factor."
    )
    entropix_hehv_temperature_floor: float = _factor(2.0, "HEHV: the lowest temperature.")
    entropix_hehv_top_p_attention_entropy: float = _weight(
        0.2, "HEHV: top_p is p - this ae."
    )
    entropix_hehv_top_p_floor: float = _share(0.5, "HEHV: the lowest top_p.")

    entropix_adaptive_candidates: int = _count(
        5, "Adaptive: so many codes are sampled, and the likeliest of them is taken.", le=32
    )
    entropix_adaptive_entropy: float = _weight(
        0.3, "Adaptive: the temperature is T times (1 + this (H + V) + "
        "entropix_adaptive_attention_entropy (ae + av) - entropix_adaptive_agreement ag).",
    )
    entropix_adaptive_attention_entropy: float = _weight(
        0.2, "Adaptive: what entropy and varentropy of the attention add to that factor."
    )
    entropix_adaptive_agreement: float = _weight(
        0.2, "Adaptive: what the attention's agreement takes from that factor."
    )
    entropix_adaptive_top_p: float = _weight(0.1, "Adaptive: top_p is p (1 + this av).")
    entropix_adaptive_top_p_floor: float = _share(0.1, "Adaptive: the lowest top_p.")
    entropix_adaptive_top_p_ceiling: float = _share(1.0, "Adaptive: the highest top_p.")
    entropix_adaptive_top_k_strength: float = _weight(
        0.3, "Adaptive: top_k is k (1 + this is - entropix_adaptive_top_k_agreement ag), rounded."
    )
    entropix_adaptive_top_k_agreement: float = _weight(
        0.2, "Adaptive: what the attention's agreement takes from that factor."
    )
    entropix_adaptive_top_k_floor: int = _count(1, "Adaptive: the lowest top_k.", le=2**31 - 1)
    entropix_adaptive_top_k_ceiling: int = _count(
        100, "Adaptive: the highest top_k.", le=2**31 - 1
    )
    entropix_adaptive_min_p: float = _weight(0.5, "Adaptive: min_p is m (1 - this (H + V)).")
    entropix_adaptive_min_p_floor: float = _share(0.01, "Adaptive: the lowest min_p.")
    entropix_adaptive_min_p_ceiling: float = _share(0.5, "Adaptive: the highest min_p.")

    entropix_pause_interval: int = _count(
        50, "`pause` puts in at most one frame of silence in so many.",
        unit="frames", needs=_PAUSES, le=7500,
    )
    entropix_pause_silence: int = _count(
        5, "`pause` neither acts before so many frames, nor behind as many of silence.",
        unit="frames", needs=_PAUSES, le=750,
    )
    entropix_pause_end: int = _count(
        10, "`pause` does not act where fewer frames than this are left to the longest length.",
        unit="frames", needs=_PAUSES, ge=0, le=7500,
    )
    entropix_branch_rollouts: int = _count(
        4, "`branch` samples this many continuations, each with another first code; a row is held "
        "for each as long as the utterance lasts.", ge=2, le=8, needs=_BRANCHES,
    )
    entropix_branch_frames: int = _count(
        12, "`branch` ranks them after this many frames, which are sent no sooner.",
        unit="frames", needs=_BRANCHES, le=75,
    )
    entropix_branch_interval: int = _count(
        50, "`branch` acts at most once in so many frames, or in entropix_branch_frames.",
        unit="frames", needs=_BRANCHES, le=7500,
    )
    # fmt: on
