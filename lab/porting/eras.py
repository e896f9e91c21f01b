"""Detection of a published model's training switches by teacher-forced loss.

The files do not state them (`lab.porting.convert.Switches`), but under wrong switches a model
predicts badly, which can be measured on any speech with known codes and phonemes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from lab.porting.convert import NarMask, Switches
from models.checkpoints.published.load import load_public
from models.config import CodeSums
from models.valle import Valle


@dataclass(frozen=True, eq=False)
class Pair:
    """Codes ``[T, K]`` int64 of an utterance with its phonemes, BOS and EOS included.

    `language` is an index into the model's; `prompt` has codes ``[Tp, K]`` of the same voice.
    """

    phoneme_ids: Sequence[int]
    codes: Tensor
    language: int = 0
    prompt: Tensor | None = None


@dataclass(frozen=True)
class EraLoss:
    """The mean cross-entropy under one combination of switches, in nats a code.

    `ar` is that of level 0 with its stop token, `nar` that of levels 1 and up.
    """

    switches: Switches
    ar: float
    nar: float

    @property
    def total(self) -> float:
        """The sum of both, by which combinations are ranked."""
        return self.ar + self.nar

    def __str__(self) -> str:
        language = "a" if self.switches.language else "no"
        return (
            f"{self.ar:8.4f} {self.nar:8.4f}  sums {self.switches.code_sums},"
            f" mask {self.switches.nar_mask}, {language} language segment"
        )


def eras(source: Path, pairs: Sequence[Pair]) -> list[EraLoss]:
    """Return the teacher-forced loss of every combination of switches, lowest first.

    Raises ValueError if there are no pairs, or one has another number of levels than the model.
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
        model.config = switches.applied(model.config)
        ar, nar = _losses(model, pairs)
        losses.append(EraLoss(switches, ar, nar))
    return sorted(losses, key=lambda loss: loss.total)


@torch.inference_mode()
def _losses(model: Valle, pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return the mean losses of level 0 and of levels 1 and up, in nats."""
    ar = torch.cat([_ar_losses(model, pair) for pair in pairs])
    nar = torch.cat([
        _nar_losses(model, pair, level) for pair in pairs for level in range(1, model.config.levels)
    ])
    return float(ar.mean()), float(nar.mean())


def _ar_losses(model: Valle, pair: Pair) -> Tensor:
    """Return the losses ``[T + 1]`` of level 0 and its stop token, in nats."""
    prefix = model.prefix(pair.phoneme_ids, 0, language=pair.language, prompt=pair.prompt)
    stop = pair.codes.new_full((1,), model.config.stop_token)
    truth = torch.cat([pair.codes[:, 0], stop])
    return F.cross_entropy(model.ar_logits(prefix, pair.codes), truth, reduction="none")


def _nar_losses(model: Valle, pair: Pair, level: int) -> Tensor:
    """Return the losses ``[T]`` of a level from 1 on, in nats."""
    prefix = model.prefix(pair.phoneme_ids, level, language=pair.language, prompt=pair.prompt)
    logits = model.nar_logits(prefix, pair.codes, level)
    return F.cross_entropy(logits, pair.codes[:, level], reduction="none")
