"""What may spoil a voice: noise, music, clipping, no speech, a narrow band.

Measured, and never refused.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_RATE_HZ: Final = 16_000
_HOP = 320  # 20 ms
_FRAME = 640  # 40 ms
_PITCH_LAGS: Final = slice(_RATE_HZ // 400, _RATE_HZ // 60)
_ACTIVE_DB: Final = -30.0  # relative to the loudest frames
_VOICED: Final = 0.5  # correlation with the period before
_TELEPHONE_HZ: Final = 4000

# Calibrated with the built-in voices and what is mixed with them in the test.
_LEAST_VOICED: Final = 0.12
_LEAST_SNR_DB: Final = 20.0
_LEAST_HIGH_DB: Final = -50.0
_MOST_HELD = 0.62
_OFTEN_HELD = 0.55
_LEAST_RANGE_DB: Final = 12.0
_LOUD_DB: Final = -15.0  # relative to the loudest frames
_LEAST_CREST_DB: Final = 6.7

_Samples = NDArray[Any]


def quality_warnings(samples: _Samples, rate_hz: int) -> list[str]:
    """Return a sentence for each thing that may spoil a voice; mono, trimmed, at least 1 s."""
    import soxr

    sound = soxr.resample(samples, rate_hz, _RATE_HZ) if rate_hz != _RATE_HZ else samples
    count = (len(sound) - _FRAME) // _HOP + 1
    frames = np.lib.stride_tricks.sliding_window_view(sound, _FRAME)[: count * _HOP : _HOP]
    level_db = 10 * np.log10((frames**2).mean(1) + 1e-12)
    active = frames[level_db > np.percentile(level_db, 95) + _ACTIVE_DB]
    warnings = []
    if rate_hz <= 2 * _TELEPHONE_HZ or _high_db(active) < _LEAST_HIGH_DB:
        warnings.append("it has a narrow band, as of a telephone: the voice will sound as dull")
    strength, lags = _pitch(active)
    if float((strength > _VOICED).mean()) < _LEAST_VOICED:
        return [*warnings, "no speech was found in it"]
    range_db = float(np.percentile(level_db, 95) - np.percentile(level_db, 5))
    held = _held(strength, lags)
    if held > _MOST_HELD or (held > _OFTEN_HELD and range_db < _LEAST_RANGE_DB):
        warnings.append("it sounds like music or another steady sound: send speech alone")
    elif _crest_db(frames[level_db > np.percentile(level_db, 95) + _LOUD_DB]) < _LEAST_CREST_DB:
        warnings.append("it sounds clipped, as what was recorded too loud before it was compressed")
    elif range_db < _LEAST_SNR_DB:
        warnings.append(f"it is noisy: its pauses are only {range_db:.0f} dB below the speech")
    return warnings


def _crest_db(frames: _Samples) -> float:
    """Return how far the peaks of frames lie over their power: the median, in dB."""
    power = (frames**2).mean(1)
    return float(np.median(10 * np.log10((frames**2).max(1) / power)))


def _high_db(frames: _Samples) -> float:
    """Return the power over 4 kHz in dB of that below."""
    power = (np.abs(np.fft.rfft(frames * np.hanning(_FRAME), axis=1)) ** 2).mean(0)
    border = _TELEPHONE_HZ * _FRAME // _RATE_HZ
    high = power[border + 8 :].sum()
    low = power[:border].sum()
    return float(10 * np.log10((high + 1e-20) / (low + 1e-20)))


def _pitch(frames: _Samples) -> tuple[_Samples, _Samples]:
    """Return how periodic each frame ``[F, N]`` is, from 0 to 1, and its period in samples."""
    centred = frames - frames.mean(1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * _FRAME, axis=1)) ** 2
    correlation = np.fft.irfft(spectrum, axis=1)[:, :_FRAME]
    # The overlap of a frame with itself shrinks with the lag.
    correlation /= correlation[:, :1] + 1e-12
    correlation *= _FRAME / (_FRAME - np.arange(_FRAME))
    window = correlation[:, _PITCH_LAGS]
    best = window.argmax(1)
    return window[np.arange(len(window)), best], best + _PITCH_LAGS.start


def _held(strength: _Samples, lags: _Samples) -> float:
    """Return the share of voiced frames with the period of the frame before: held tones."""
    voiced = (strength[1:] > _VOICED) & (strength[:-1] > _VOICED)
    same = np.abs(np.diff(lags)) <= np.maximum(1, 0.006 * lags[1:])
    return float(same[voiced].mean()) if voiced.any() else 0.0
