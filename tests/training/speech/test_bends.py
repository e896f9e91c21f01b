import numpy as np
import pytest

from training.speech.bends import (
    PITCHES,
    SPEEDS,
    UNBENT,
    Bend,
    bend_named,
    bends,
    bent_pitch,
    speak,
    stretched,
)


def peak(samples: np.ndarray, low_hz: float, high_hz: float) -> float:
    """Return the loudest frequency between two."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    frequencies = np.fft.rfftfreq(len(samples), 1 / 24_000)
    inside = (frequencies > low_hz) & (frequencies < high_hz)
    return float(frequencies[inside][spectrum[inside].argmax()])


def test_speakers_stay_the_same_keep_within_bounds_and_are_found_by_name() -> None:
    many = bends(500)
    assert bends(5) == many[:5]
    assert bends(5, seed=1) != many[:5]
    assert len({bend.name for bend in many}) == 500
    assert bend_named(many[7].name) == many[7]
    assert bend_named("hibari") == UNBENT
    pitches, formants = (
        np.array([getattr(one, name) for one in many]) for name in ("pitch", "formant")
    )
    assert PITCHES[0] <= pitches.min() < pitches.max() <= PITCHES[1]
    assert SPEEDS[0] <= min(one.speed for one in many) < max(one.speed for one in many) <= SPEEDS[1]
    assert np.corrcoef(np.log(pitches), np.log(formants))[0, 1] > 0.8


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


def test_pitch_moves_as_asked_for_around_its_middle_and_roughness_repeats() -> None:
    pitch = np.array([0, 150, 200, 250, 0], np.float32)
    bent = bent_pitch(pitch, Bend("flat", pitch=0.5, move=0.5), 0)
    assert bent[[0, 2, 4]] == pytest.approx([0, 100, 0])
    assert np.log(bent[3] / bent[1]) == pytest.approx(0.5 * np.log(250 / 150), rel=1e-5)
    steady, rough = np.full(200, 120, np.float32), Bend("rough", roughness=0.02)
    one, again, other = (bent_pitch(steady, rough, piece) for piece in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert 0.01 < np.log(one / 120).std() < 0.03
    assert not np.array_equal(one, other)


def test_a_bent_voice_says_the_same_at_another_pitch() -> None:
    hibari = pytest.importorskip("hibari")
    teacher, text = hibari.Hibari(), "Ah."
    plain = speak(teacher, text, UNBENT)
    np.testing.assert_array_equal(plain, teacher(text, seed=0))
    low = speak(teacher, text, Bend("low", pitch=0.7, formant=0.9))
    assert len(low) == len(plain)
    middle = slice(len(plain) * 4 // 10, len(plain) * 6 // 10)
    ratio = peak(low[middle], 60, 400) / peak(plain[middle], 60, 400)
    assert min(abs(ratio - 0.7 * k) for k in (0.5, 1, 2)) < 0.06  # the loudest may be a partial
