"""Integrated loudness by ITU-R BS.1770 (EBU R 128), measured by libav's filter `ebur128`."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from models.voices.libav import FilterGraph

_BLOCK_S: Final = 0.4  # length of a gating block of BS.1770
_SILENT_LUFS: Final = -70.0  # the absolute gate: the filter's result if nothing passes it
_INTEGRATED: Final = "lavfi.r128.I"


def loudness_lufs(samples: NDArray[Any], sample_rate_hz: int) -> float:
    """Return the integrated loudness of mono audio in LUFS, to 0.01; minus infinity for silence.

    Pauses do not count. ``samples`` are ``[N]`` float, finite; less than 0.4 s is repeated to that
    length.
    """
    if not len(samples):
        return -np.inf
    shortest = -(-round(_BLOCK_S * sample_rate_hz) // len(samples))
    peak = max(1.0, float(np.abs(samples).max()))  # the filter measures up to 10 LUFS
    sound = np.ascontiguousarray(np.tile(samples / peak, max(1, shortest)), np.float32)
    meter = FilterGraph([("ebur128", "metadata=1:framelog=quiet")], sample_rate_hz)
    measured = _SILENT_LUFS
    for frame in (*meter.frames(sound), *meter.frames(None)):  # the last is of all
        measured = float(frame.metadata.get(_INTEGRATED, measured))
    return measured + 20 * np.log10(peak) if measured > _SILENT_LUFS else -np.inf
