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


def test_the_first_speakers_stay_the_same_whatever_their_number() -> None:
    assert bends(5) == bends(50)[:5]
    assert bends(5, seed=1) != bends(5)
    assert len({bend.name for bend in bends(50)}) == 50


def test_a_speaker_is_found_by_name_and_anybody_else_is_not_bent() -> None:
    assert bend_named(bends(8)[7].name) == bends(8)[7]
    assert bend_named("hibari") == UNBENT


def test_speakers_keep_within_bounds_and_their_formants_follow_their_pitch() -> None:
    many = bends(500)
    pitches, formants = (
        np.array([getattr(one, name) for one in many]) for name in ("pitch", "formant")
    )
    assert PITCHES[0] <= pitches.min() < pitches.max() <= PITCHES[1]
    assert SPEEDS[0] <= min(one.speed for one in many) < max(one.speed for one in many) <= SPEEDS[1]
    assert np.corrcoef(np.log(pitches), np.log(formants))[0, 1] > 0.8


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_what_was_at_a_bin_is_found_at_its_multiple(factor: float) -> None:
    spectra = (
        np.exp(-(((np.arange(601.0) - 200) / 20) ** 2)).astype(np.float32)[:, None].repeat(3, 1)
    )
    assert stretched(spectra, factor).shape == (601, 3)
    assert stretched(spectra, factor).argmax(0).tolist() == [200 * factor] * 3


def test_each_band_is_stretched_by_its_own_factor_and_bands_join() -> None:
    places = np.arange(601.0)
    peaks = sum(np.exp(-(((places - middle) / 4) ** 2)) for middle in (20, 80, 300))
    spectra = np.asarray(peaks, np.float32)[:, None]
    moved = stretched(spectra, 1.0, (1.2, 1.0, 0.9))[:, 0]
    wider = 45 * 0.2  # the first band is that much wider: 900 Hz are bin 45
    for place in (20 * 1.2, 80 + wider, 125 + wider + (300 - 125) * 0.9):
        near = np.arange(round(place) - 6, round(place) + 7)
        assert near[moved[near].argmax()] == pytest.approx(place, abs=1)


def test_pitch_moves_as_much_as_asked_for_around_the_same_middle() -> None:
    pitch = np.array([0, 150, 200, 250, 0], np.float32)
    bent = bent_pitch(pitch, Bend("flat", pitch=0.5, move=0.5), 0)
    assert bent[[0, 4]].tolist() == [0, 0]
    assert bent[2] == pytest.approx(100)
    assert np.log(bent[3] / bent[1]) == pytest.approx(0.5 * np.log(250 / 150), rel=1e-5)


def test_a_rough_voice_is_the_same_every_time_and_never_unvoiced() -> None:
    pitch = np.full(200, 120, np.float32)
    rough = Bend("rough", roughness=0.02)
    bent = bent_pitch(pitch, rough, 0)
    np.testing.assert_array_equal(bent, bent_pitch(pitch, rough, 0))
    assert 0.01 < np.log(bent / 120).std() < 0.03
    assert not np.array_equal(bent, bent_pitch(pitch, rough, 1))


def test_a_factor_of_one_changes_nothing() -> None:
    spectra = np.random.default_rng(0).normal(size=(601, 4)).astype(np.float32)
    np.testing.assert_allclose(stretched(spectra, 1.0), spectra, rtol=1e-6)


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
