"""How many rows of the batch an utterance needs, by its knobs. Loads without torch."""

from samplers.knobs.features import is_guided, is_on
from samplers.knobs.params import SamplingParams


def hypotheses_of(params: SamplingParams) -> int:
    """Return how many hypotheses of an utterance may be drawn at once."""
    branches = is_on("branch", params)
    ways = params.entropix_branch_rollouts if branches else 1
    return max(params.beam_width, params.best_of, ways)


def rows_needed(params: SamplingParams) -> int:
    """Return how many rows an utterance needs: one a hypothesis, two if guided."""
    return hypotheses_of(params) * (2 if is_guided(params) else 1)


def knob_at_fault(params: SamplingParams) -> str:
    """Return the knob that asks for most rows, to name where they are too many."""
    if hypotheses_of(params) == 1:
        return "cfg_strength"
    if params.beam_width > 1:
        return "beam_width"
    return "best_of" if params.best_of > 1 else "entropix_branch_rollouts"
