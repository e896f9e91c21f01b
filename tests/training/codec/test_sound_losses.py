"""What pulls at the codec's samples, and what tells pulses from noise."""

import math
from typing import Any

import pytest
import torch

from models.config import SpectralCodecConfig
from training.codec.sound_losses import SoundLosses, breath_loss, pitch_loss, with_breath

BINS, FRAMES = 5, 6


def decoded(pulses: float, noise: float) -> torch.Tensor:
    parts = [torch.full((1, FRAMES, BINS), value) for value in (pulses, 0.0, noise)]
    return torch.cat(parts, -1).requires_grad_()


@pytest.mark.parametrize(
    ("pulses", "pitch_hz", "loss"),
    [(3.0, 120.0, 0), (3.0, -1.0, 0), (3.0, 0.0, 5), (-3.0, 0.0, 0)],  # -1: not known
)
def test_pulses_are_too_loud_only_where_there_is_no_pitch(pulses, pitch_hz, loss) -> None:
    assert breath_loss(decoded(pulses, 0.0), torch.full((1, FRAMES), pitch_hz)) == loss


def test_frames_next_to_voiced_ones_are_left_alone() -> None:
    out = decoded(1.0, 0.0)
    breath_loss(out, torch.tensor([[0.0, 0, 120, 0, 0, 0]])).backward()
    assert out.grad is not None
    touched = out.grad.abs().sum(-1)[0] > 0
    assert touched.tolist() == [True, False, False, False, True, True]


def test_its_gradient_fades_as_it_does() -> None:
    pull, silent = torch.randn(1, FRAMES, 3 * BINS), torch.zeros(1, FRAMES)
    strength = []
    for pulses in (1.0, -1.9, -2.1):
        out = decoded(pulses, 0.0)
        added = with_breath(pull, breath_loss(out, silent), out) - pull
        strength.append(float(added.norm() / pull.norm()))
    assert strength == pytest.approx([0.5, 0.05, 0.0], abs=1e-4)


def test_pitch_is_judged_where_it_is_known() -> None:
    truth = torch.tensor([[100.0, 100, 0, -1, 200, 200]])
    assert pitch_loss(torch.tensor([[100.0, 100, 300, 300, 200, 200]]), truth) == 0
    octave = pitch_loss(torch.tensor([[200.0, 200, 300, 300, 400, 400]]), truth)
    assert octave == pytest.approx(1.0)  # its changes are right
    assert pitch_loss(truth.clamp(min=50), torch.zeros(1, 6)) == 0
    jumping = pitch_loss(torch.tensor([[200.0, 100, 1, 1, 200, 200]]), truth)
    assert jumping == pytest.approx(1 / 4 + 4 * 1 / 2)
    assert math.isfinite(float(jumping))


@pytest.fixture
def losses() -> SoundLosses:
    return SoundLosses(SpectralCodecConfig(), 1, torch.device("cpu"), torch.float32)


def test_phases_are_compared_and_nothing_else(losses: SoundLosses) -> None:
    samples = torch.randn(2, 12_000)
    assert losses.phase_distance(samples, 0.1 * samples) == pytest.approx(0, abs=1e-3)
    assert losses.phase_distance(samples, -samples) == pytest.approx(2, abs=1e-3)
    other = losses.phase_distance(samples, torch.randn(2, 12_000))
    assert other == pytest.approx(1, abs=0.1)


def test_phases_pull_only_where_they_are_known(losses: SoundLosses) -> None:
    samples = torch.randn(2, 12_000)
    pulls = []
    for known in (False, True):
        heard = samples.roll(7).requires_grad_()
        found: dict[str, Any] = {}
        clips = torch.tensor([known, False])
        pulls.append(losses.pull(samples, heard, found, judged=False, known=clips))
        assert ("phase" in found) == known
    assert not torch.equal(pulls[0][0], pulls[1][0])
    torch.testing.assert_close(pulls[0][1], pulls[1][1])
