"""The frames of a NAR level of one utterance, sampled and guided by themselves."""

import torch
from torch import Tensor

from samplers.knobs.params import SamplingParams
from samplers.nar import kind_of, pack_rows, row_of, sample_nar
from samplers.ops import guidance
from samplers.ops.rows import within


def sample_frames(
    logits: Tensor,
    params: SamplingParams,
    *,
    seed: int = 1,
    utterance: int = 0,
    level: int = 1,
    position: int = 0,
    codebook: Tensor | None = None,
) -> Tensor:
    """Return ``(T,)`` codes of the logits ``(T, V)``."""
    row = row_of(params, seed=seed, utterance=utterance, level=level, vocab_size=logits.shape[-1])
    codebook = torch.zeros(logits.shape[-1], 1) if codebook is None else codebook
    rows, at = torch.from_numpy(pack_rows([row])), torch.tensor([position])
    return sample_nar(logits[None], rows, at, codebook, kind_of(params, level))[0]


def guide_frames(positive: Tensor, negative: Tensor, strength: float, rescale: float) -> Tensor:
    """Return ``(T, V)`` logits, each frame guided by itself."""
    knobs = torch.tensor([[within(strength)], [rescale]])
    return guidance.guide_frames(positive[None], negative[None], *knobs)[0]
