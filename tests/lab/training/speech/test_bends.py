import numpy as np
import pytest

from lab.training.speech.bends import stretched

WIDER = 45 * 0.2  # the first band, times 1.2, is that much wider: 900 Hz are bin 45


@pytest.mark.parametrize(
    ("factor", "bands", "moved"),
    [
        (0.8, (1.0, 1.0, 1.0), {20: 16, 80: 64, 300: 240}),
        (1.25, (1.0, 1.0, 1.0), {20: 25, 80: 100, 300: 375}),
        (1.0, (1.0, 1.0, 1.0), {20: 20, 80: 80, 300: 300}),
        (1.0, (1.2, 1.0, 0.9), {20: 24, 80: 80 + WIDER, 300: 125 + WIDER + (300 - 125) * 0.9}),
    ],
)
def test_each_band_is_stretched_by_its_own_factor_and_bands_join(factor, bands, moved):
    places = np.arange(601.0)
    peaks = sum(np.exp(-(((places - middle) / 4) ** 2)) for middle in moved)
    spectra = stretched(np.asarray(peaks, np.float32)[:, None].repeat(3, 1), factor, bands)
    assert spectra.shape == (601, 3)
    for place in moved.values():
        near = np.arange(round(place) - 6, round(place) + 7)
        assert near[spectra[near, 1].argmax()] == pytest.approx(place, abs=1)
