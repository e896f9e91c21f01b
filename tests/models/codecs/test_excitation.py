"""Pulses and noise: right pitch, no jump of phase between frames, the same however it is cut."""

import math

import pytest
import torch
from torch import Tensor

from models.codecs.excitation import Excitation
from models.codecs.streaming import DecoderState
from models.config import SpectralCodecConfig

CONFIG = SpectralCodecConfig(dimension=8, pitch_width=16)
HOP, WINDOW, RATE_HZ = CONFIG.hop, CONFIG.window, CONFIG.sample_rate_hz


@pytest.fixture(scope="module")
def excitation() -> Excitation:
    torch.manual_seed(0)
    return Excitation(CONFIG, torch.hann_window(WINDOW)).requires_grad_(False)


def joined(excitation: Excitation, spectra: Tensor) -> Tensor:
    """Overlap and add spectra ``[T, bins]`` of windows; the first and last three are cut off."""
    frames = torch.fft.irfft(spectra, WINDOW) * excitation.window
    total = torch.zeros(len(frames) * HOP + WINDOW - HOP)
    for number, frame in enumerate(frames):
        total[number * HOP : number * HOP + WINDOW] += frame
    return total[WINDOW - HOP : HOP - WINDOW]


def glide(frames: int, from_hz: float, to_hz: float) -> Tensor:
    return torch.linspace(from_hz, to_hz, frames, dtype=torch.float64)[None]


@pytest.mark.parametrize("hz", [62.5, 120.0, 240.0, 480.0])
def test_pulses_of_a_steady_pitch_are_one_periodic_train(excitation: Excitation, hz: float) -> None:
    pulses, _ = excitation(glide(60, hz, hz), None)
    sound = joined(excitation, pulses[0])
    period = round(RATE_HZ / hz)
    assert (sound[period:] - sound[:-period]).abs().max() < 1e-3 * sound.abs().max()


def test_harmonics_have_a_height_of_one(excitation: Excitation) -> None:
    hz = 8 * RATE_HZ / WINDOW  # harmonics in the middle of bins
    pulses, _ = excitation(glide(10, hz, hz), None)
    heights = pulses[0, 5].abs()[8::8]
    below_top = heights[: int(0.46 * RATE_HZ / hz)]
    assert torch.allclose(below_top, torch.ones_like(below_top), atol=1e-3)
    assert heights[len(below_top) + 1 :].max() < 1e-2


def test_a_gliding_pitch_stays_one_voice(excitation: Excitation) -> None:
    """Windows that disagreed on the phase would cancel each other where they overlap."""
    pulses, _ = excitation(glide(80, 150.0, 220.0), None)
    overlapping = joined(excitation, pulses[0]).square().sum()
    steady = joined(excitation, excitation(glide(80, 185.0, 185.0), None)[0][0]).square().sum()
    # as many harmonics on average, and a tenth more or less for where pulses fall
    assert overlapping / steady == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("sizes", [[1] * 40, [7, 33], [39, 1]])
def test_any_chunking_has_the_phases_of_one_piece(excitation: Excitation, sizes: list[int]) -> None:
    pitch_hz, state = glide(40, 90.0, 300.0), DecoderState()
    pieces = [excitation(piece, state) for piece in pitch_hz.split(sizes, 1)]
    for part, whole in enumerate(excitation(pitch_hz, None)):
        found = torch.cat([piece[part] for piece in pieces], 1)
        assert (found - whole).abs().max() < 1e-4 * whole.abs().max()


def test_pulses_stand_where_they_are_told_to(excitation: Excitation) -> None:
    pitch_hz = glide(20, 100.0, 100.0)
    told = torch.full((1, 20), -1.0)
    told[0, 10] = 0.25
    moved, as_summed = excitation(pitch_hz, None, told)[0], excitation(pitch_hz, None)[0]
    others = torch.arange(20) != 10
    assert torch.equal(moved[0, others], as_summed[0, others])
    frame = torch.fft.irfft(moved[0, 10], WINDOW)
    # a quarter of a cycle past a pulse in the middle: the last one is that long ago
    period = RATE_HZ // 100
    assert int(frame[WINDOW // 2 - period // 2 : WINDOW // 2 + period // 2].argmax()) == period // 4


def test_pitch_stays_within_what_throats_do(excitation: Excitation) -> None:
    pitch_hz = excitation.pitch(1e3 * torch.randn(1, 200, CONFIG.dimension))
    assert pitch_hz.dtype == torch.float64
    assert 50 <= pitch_hz.min() < pitch_hz.max() <= 600


def test_noise_has_unit_variance_and_goes_round(excitation: Excitation) -> None:
    _, noise = excitation(glide(600, 100.0, 100.0), None)
    assert torch.equal(noise[0, 512:], noise[0, :88])
    inner = noise[0, :, 1:-1].abs().square().mean()
    assert math.isclose(inner, 1.0, rel_tol=0.02)
