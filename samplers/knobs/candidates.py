"""The knobs of several hypotheses of an utterance, of which one is kept. Loads without torch."""

from typing import Any

from samplers.knobs.knob import KnobSet, Needs, knob

_RANKS: Needs = ({"best_of": (), "entropix_action": ("branch",)},)


def _penalty(default: float, description: str, needs: Needs = _RANKS) -> Any:
    return knob(
        default, description,
        group="candidates", off=0.0, unit="nats", step=0.1, top=10.0, slider=False,
        ge=0.0, le=100.0, needs=needs,
    )  # fmt: skip


class CandidateKnobs(KnobSet):
    """How many hypotheses of an utterance are drawn, and which is kept."""

    # fmt: off
    best_of: int = knob(
        1,
        "How many takes of each utterance are drawn in parallel, each with its own noise; the best "
        "is kept: first those that spoke to their stop, then by rank. No audio is sent before all "
        "have ended, and each needs a row.",
        group="candidates", off=1, step=1, ge=1, le=8,
        values=(1, 2, 4),
    )
    beam_width: int = knob(
        0,
        "Beam search over this many beams instead of random draws; 1 is greedy, 0 is off. No audio "
        "is sent before the search has ended, and each beam needs a row.",
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
        "they follow the text, from 0 to 1, which an alignment head tells; without one 0.",
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
