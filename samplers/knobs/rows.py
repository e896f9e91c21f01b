"""How many rows of the batch a job takes, as its knobs ask for them. Loads without torch."""

from samplers.knobs.features import is_guided, is_on
from samplers.knobs.params import SamplingParams


def takes_of(params: SamplingParams) -> int:
    """Return in how many ways an utterance may be drawn at once."""
    branches = is_on("branch", params)
    ways = params.entropix_branch_rollouts if branches else 1
    return max(params.beam_width, params.best_of, ways)


def rows_needed(params: SamplingParams) -> int:
    """Return how many rows an utterance takes as long as it lasts: twice as many if guided."""
    return takes_of(params) * (2 if is_guided(params) else 1)


def knob_at_fault(params: SamplingParams) -> str:
    """Return the knob to turn down where those rows are too many."""
    if takes_of(params) == 1:
        return "cfg_strength"
    if params.beam_width > 1:
        return "beam_width"
    return "best_of" if params.best_of > 1 else "entropix_branch_rollouts"
