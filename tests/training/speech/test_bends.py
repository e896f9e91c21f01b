import numpy as np
import pytest

from training.speech.bends import PITCHES, SPEEDS, Bend, bends, speak, stretched


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


def test_a_factor_of_one_changes_nothing() -> None:
    spectra = np.random.default_rng(0).normal(size=(601, 4)).astype(np.float32)
    np.testing.assert_allclose(stretched(spectra, 1.0), spectra, rtol=1e-6)


def test_a_bent_voice_says_the_same_at_another_pitch() -> None:
    hibari = pytest.importorskip("hibari")
    teacher, text = hibari.Hibari(), "Ah."
    plain = speak(teacher, text, Bend("plain", 1.0, 1.0, 1.0))
    np.testing.assert_array_equal(plain, teacher(text, seed=0))
    low = speak(teacher, text, Bend("low", 0.7, 0.9, 1.0))
    assert len(low) == len(plain)
    middle = slice(len(plain) * 4 // 10, len(plain) * 6 // 10)
    ratio = peak(low[middle], 60, 400) / peak(plain[middle], 60, 400)
    assert min(abs(ratio - 0.7 * k) for k in (0.5, 1, 2)) < 0.06  # the loudest may be a partial
