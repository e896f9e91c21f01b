"""With which switches a published model was trained: those under which true codes cost least.

The files do not say (`models.checkpoints.published.load.Switches`), but a model that reads other
sums, sees other frames or misses a segment predicts badly, and that can be measured on any speech
of which codes and phonemes are known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from models.checkpoints.published.load import NarMask, Switches, configured, load_public
from models.config import CodeSums
from models.valle import Valle


@dataclass(frozen=True, eq=False)
class Pair:
    """Speech of which the text is known.

    Attributes:
        phoneme_ids: With the begin and end marks.
        codes: ``[T, K]`` int64.
        language: Its index in the model's languages.
        prompt: ``[Tp, K]`` int64 codes of the same voice, or None.
    """

    phoneme_ids: Sequence[int]
    codes: Tensor
    language: int = 0
    prompt: Tensor | None = None


@dataclass(frozen=True)
class EraLoss:
    """What true codes cost under one combination of switches.

    Attributes:
        switches: The combination, each switch set.
        ar: Mean nats a frame of level 0, its stop included.
        nar: Mean nats a code of the finer levels.
    """

    switches: Switches
    ar: float
    nar: float

    @property
    def total(self) -> float:
        """What the combinations are ranked by: a code of level 0 counts as one of each other."""
        return self.ar + self.nar

    def __str__(self) -> str:
        language = "a" if self.switches.language else "no"
        return (
            f"{self.ar:8.4f} {self.nar:8.4f}  sums {self.switches.code_sums},"
            f" mask {self.switches.nar_mask}, {language} language segment"
        )


def eras(source: Path, pairs: Sequence[Pair]) -> list[EraLoss]:
    """Measure every combination of switches by teacher-forced loss.

    Args:
        source: A published file, or a folder with one.
        pairs: Speech and its phonemes; a few seconds are enough to tell.

    Returns:
        The likeliest combination first.

    Raises:
        CheckpointError: As `load_public`.
        ValueError: There are no pairs, or one of other levels than the model's.
    """
    if not pairs:
        raise ValueError("no codes to measure with")
    model = load_public(source)
    if wrong := [pair for pair in pairs if pair.codes.shape[1] != model.config.levels]:
        raise ValueError(
            f"codes have {wrong[0].codes.shape[1]} levels, the model {model.config.levels}"
        )
    losses = []
    for sums, mask, language in product(get_args(CodeSums), get_args(NarMask), (True, False)):
        switches = Switches(sums, mask, language)
        model.config = configured(model.config, switches)
        ar, nar = _losses(model, pairs)
        losses.append(EraLoss(switches, ar, nar))
    return sorted(losses, key=lambda loss: loss.total)


@torch.inference_mode()
def _losses(model: Valle, pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return the mean nats of level 0 and of all finer levels."""
    ar = torch.cat([_ar_losses(model, pair) for pair in pairs])
    nar = torch.cat([
        _nar_losses(model, pair, level) for pair in pairs for level in range(1, model.config.levels)
    ])
    return float(ar.mean()), float(nar.mean())


def _ar_losses(model: Valle, pair: Pair) -> Tensor:
    """Return ``[T + 1]`` nats of level 0 and its stop."""
    prefix = model.prefix(pair.phoneme_ids, 0, language=pair.language, prompt=pair.prompt)
    stop = pair.codes.new_full((1,), model.config.stop_token)
    truth = torch.cat([pair.codes[:, 0], stop])
    return F.cross_entropy(model.ar_logits(prefix, pair.codes), truth, reduction="none")


def _nar_losses(model: Valle, pair: Pair, level: int) -> Tensor:
    """Return ``[T]`` nats of a finer level."""
    prefix = model.prefix(pair.phoneme_ids, level, language=pair.language, prompt=pair.prompt)
    logits = model.nar_logits(prefix, pair.codes, level)
    return F.cross_entropy(logits, pair.codes[:, level], reduction="none")
