"""The knobs of utterances that are tried in several ways at once, of which one is kept. Torch-free.

`samplers.knobs.params` is the declaration that these are a part of. How takes are ranked stands in
`samplers.ranking`, how a beam search goes on in `samplers.ops.beam`.
"""

from typing import Any

from samplers.knobs.knob import KnobSet, knob


def _penalty(default: float, description: str) -> Any:
    return knob(
        default, description,
        group="candidates", off=0.0, unit="nats", step=0.1, top=10.0, ge=0.0, le=100.0,
    )  # fmt: skip


class CandidateKnobs(KnobSet):
    """How many ways an utterance is tried in, and which is kept."""

    # fmt: off
    best_of: int = knob(
        1,
        "So many takes of each utterance are drawn together, each with noise of its own, and the "
        "best is kept: those that ended by themselves come first, then the rank; nothing is heard "
        "before all have ended, and each costs a row.",
        group="candidates", off=1, step=1, ge=1, le=8,
    )
    beam_width: int = knob(
        0,
        "Beam search: nothing is drawn, the so many likeliest beginnings go on; 1 is greedy, 0 "
        "draws; nothing is heard before the search has ended, and each costs a row.",
        group="candidates", off=0, step=1, ge=0, le=8,
    )
    beam_length_power: float = knob(
        1.0,
        "Finished beams are ranked by the log-probability of their codes, stop included, over "
        "the power of their number that this is; 0 favours short ones.",
        group="candidates", off=0.0, step=0.05, ge=0.0, le=2.0,
    )
    rank_loop_penalty: float = _penalty(
        2.0,
        "Takes are ranked by the mean log-probability of their codes, less this times the share "
        "of frames that only repeat a loop, as the backtrack_ knobs define one.",
    )
    rank_silence_penalty: float = _penalty(
        2.0, "Less this times the share of frames in silences, beyond backtrack_max_silence each.",
    )
    rank_length_penalty: float = _penalty(
        0.5,
        "Less this times the distance of the logarithm of a take's length from the median's; "
        "with best_of alone.",
    )
    # fmt: on
