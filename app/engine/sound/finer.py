"""Which way an utterance's finer levels are drawn: that is the model's mask and the request's."""

from torch import Tensor

from app.engine.job import NarPlan
from app.engine.sound.nar import FinerLevels
from app.engine.sound.nar_cached import CachedLevels
from app.engine.sound.nar_windowed import WindowedLevels
from app.engine.utterance import UtteranceInput
from models.config import ModelConfig
from models.prefix_cache import PrefixCache
from models.valle import Valle
from samplers.knobs.params import SamplingParams


def nar_plan(config: ModelConfig, params: SamplingParams) -> NarPlan:
    """Return how much of an utterance is drawn at a time.

    Args:
        config: Of the model.
        params: Resolved.
    """
    if config.nar_mask != "full":
        return "chunks"
    return "windows" if params.nar_window_frames else "whole"


def finer_levels(
    model: Valle, codebooks: Tensor, inputs: UtteranceInput, prefixes: PrefixCache
) -> FinerLevels:
    """Begin the finer levels of an utterance.

    Args:
        model: On the device to use.
        codebooks: ``[K, V, D]`` vectors of the codec's codes, which some draws weigh.
        inputs: What is spoken.
        prefixes: Where what is shared comes from.
    """
    if nar_plan(model.config, inputs.params) == "chunks":
        return CachedLevels(model, codebooks, inputs, prefixes)
    return WindowedLevels(model, codebooks, inputs)
