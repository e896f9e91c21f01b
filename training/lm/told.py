"""Was that said? A text that another system heard, checked by the model's own ear.

Speech is likelier given its text than given none, all the way through. Where a word was heard
wrongly or left out it is less likely, for as long as that word lasts: so what is looked at is the
least mean gain over some frames. Of 12 sentences of the slow teacher it was -0.8 nats a frame or
more with their texts, and below -0.9 in 20 of 24 with a word changed or left out.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from models.valle import Valle

FRAMES: Final = 20
LEAST_GAIN: Final = -0.9
"""Nats a frame."""


@torch.inference_mode()
def least_gain(model: Valle, phoneme_ids: Sequence[int], codes: NDArray[np.int16]) -> float:
    """Return how much likelier the worst `FRAMES` of speech are by their text, in nats a frame.

    ``phoneme_ids`` include BOS and EOS; ``codes`` are ``[T, K]``.
    """
    frames = torch.from_numpy(codes.astype(np.int64))
    told, untold = (
        _log_likelihood(model.ar_logits(prefix, frames), frames)
        for prefix in (model.prefix(phoneme_ids, 0), model.null_prefix(0))
    )
    window = min(FRAMES, len(codes))
    return float(np.convolve(told - untold, np.ones(window) / window, "valid").min())


def was_said(model: Valle, phoneme_ids: Sequence[int], codes: NDArray[np.int16]) -> bool:
    """Return whether speech follows its text throughout; see `least_gain`."""
    return least_gain(model, phoneme_ids, codes) >= LEAST_GAIN


def _log_likelihood(logits: torch.Tensor, codes: torch.Tensor) -> NDArray[np.float32]:
    """Return the log-probability ``[T]`` of each frame of level 0, in nats."""
    log = logits.log_softmax(-1)[: len(codes)]
    return log.gather(1, codes[:, :1])[:, 0].numpy()
