"""Sounds to try things with."""

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 24_000


def syllables(seconds: float, gain: float = 1.0, pitch_hz: float = 140) -> NDArray[np.float32]:
    """Something like speech: harmonics in bursts, four a second, no two equally loud."""
    t = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    voice = sum(np.sin(2 * np.pi * pitch_hz * k * t) / k for k in range(1, 15))
    burst = np.sin(np.pi * ((4 * t) % 1)) ** 2
    stress = 0.5 + 0.5 * np.cos(2.3 * np.floor(4 * t))
    return (0.1 * gain * voice * burst * stress).astype(np.float32)


def pushed(stage, sound: NDArray[np.float32], piece: int) -> NDArray[np.float32]:
    """What a stage makes of a sound that comes in pieces of so many samples."""
    parts = [stage.push(sound[n : n + piece]) for n in range(0, len(sound), piece)]
    rest = stage.close()
    return np.concatenate([*parts, *([rest] if isinstance(rest, np.ndarray) else rest)])
