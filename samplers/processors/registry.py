"""The processors that there are. A new one is added by its line in `MOVABLE`."""

from collections.abc import Mapping

from samplers.knobs.steps import STEPS, StepName
from samplers.processors import bans, penalties, truncation
from samplers.processors.entropix import Entropix
from samplers.processors.processor import HistoryReader, LogitsProcessor
from samplers.processors.sample import RepetitionAware
from samplers.processors.temperature import Temperature

FIXED: tuple[type[LogitsProcessor], ...] = (bans.LogitBias, bans.SequenceBan, bans.MinFrames)
"""Those that come first, whatever the order."""

MOVABLE: tuple[type[LogitsProcessor], ...] = (
    penalties.RepetitionPenalty,
    penalties.FrequencyPresencePenalty,
    penalties.Dry,
    penalties.NoRepeatNgram,
    penalties.LengthPenalty,
    penalties.ExponentialDecay,
    truncation.TopNSigma,
    Temperature,
    truncation.TopK,
    truncation.TopP,
    truncation.MinP,
    truncation.PLess,
    truncation.TypicalP,
    truncation.EpsilonCutoff,
    truncation.EtaCutoff,
    truncation.Xtc,
)
"""Those whose place `sampler_order` gives; of one step, in the order in which they run."""

READERS: tuple[type[HistoryReader], ...] = (*FIXED, *MOVABLE, Entropix, RepetitionAware)
"""All that may read a row's history."""

BY_STEP: Mapping[StepName, tuple[type[LogitsProcessor], ...]] = {
    step: tuple(processor for processor in MOVABLE if processor.step() == step) for step in STEPS
}
"""The processors of each step that an order may name."""
