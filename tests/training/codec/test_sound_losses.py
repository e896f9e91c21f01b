"""What pulls at the codec's samples, and what tells pulses from noise."""

import pytest
import torch

from training.codec.sound_losses import breath_loss, pitch_loss

BINS, FRAMES = 5, 6


def decoded(pulses: float) -> torch.Tensor:
    parts = [torch.full((1, FRAMES, BINS), value) for value in (pulses, 0.0, 0.0)]
    return torch.cat(parts, -1).requires_grad_()


@pytest.mark.parametrize(
    ("pulses", "pitch_hz", "loss"),
    [(3.0, 120.0, 0), (3.0, -1.0, 0), (3.0, 0.0, 5), (-3.0, 0.0, 0)],  # -1: not known
)
def test_pulses_are_too_loud_only_where_there_is_no_pitch(pulses, pitch_hz, loss) -> None:
    assert breath_loss(decoded(pulses), torch.full((1, FRAMES), pitch_hz)) == loss


def test_pitch_is_judged_where_it_is_known() -> None:
    truth = torch.tensor([[100.0, 100, 0, -1, 200, 200]])
    assert pitch_loss(torch.tensor([[100.0, 100, 300, 300, 200, 200]]), truth) == 0
    octave = pitch_loss(torch.tensor([[200.0, 200, 300, 300, 400, 400]]), truth)
    assert octave == pytest.approx(1.0)  # its changes are right
    assert pitch_loss(truth.clamp(min=50), torch.zeros(1, 6)) == 0
    jumping = pitch_loss(torch.tensor([[200.0, 100, 1, 1, 200, 200]]), truth)
    assert jumping == pytest.approx(1 / 4 + 4 * 1 / 2)
