import pytest
import torch

from training.codec.discriminator import Discriminator, deceiving_losses, judging_loss
from training.codec.spectra import BANDS_BY_WINDOW, Spectra

SPECTRA = Spectra(24_000, torch.device("cpu"))


def noise(seed: int = 0) -> torch.Tensor:
    return torch.randn(3, 8000, generator=torch.Generator().manual_seed(seed))


def test_white_noise_is_as_loud_at_every_window_and_as_far_as_it_is_louder() -> None:
    wanted = SPECTRA.magnitudes(noise())
    powers = [part.square().mean() for part in wanted.values()]
    assert len(powers) == len(BANDS_BY_WINDOW)
    torch.testing.assert_close(torch.stack(powers), torch.full((4,), 0.375), atol=0.02, rtol=0)
    near, far = (SPECTRA.distance(wanted, SPECTRA.magnitudes(noise() * k)) for k in (1.1, 3))
    assert all(float(part) == 0 for part in SPECTRA.distance(wanted, wanted))
    assert all(0 < float(a) < float(b) for a, b in zip(near, far, strict=True))


def test_silence_has_a_gradient() -> None:
    silence = torch.zeros(1, 4000, requires_grad=True)
    wanted = SPECTRA.magnitudes(noise()[:1, :4000])
    sum(SPECTRA.distance(wanted, SPECTRA.magnitudes(silence)), torch.zeros(())).backward()
    assert silence.grad is not None
    assert silence.grad.isfinite().all()


@pytest.mark.slow
def test_the_discriminator_learns_to_tell_two_kinds_of_noise_apart() -> None:
    torch.manual_seed(0)
    judge = Discriminator()
    optimizer = torch.optim.AdamW(judge.parameters(), 2e-3)
    dull = torch.nn.functional.avg_pool1d(noise(1)[:, None], 3, 1)[:, 0]
    real, made = SPECTRA.magnitudes(noise()), SPECTRA.magnitudes(dull)
    losses = []
    for _ in range(80):
        losses.append(judging_loss(judge(real), judge(made)))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
    verdict, features = deceiving_losses(judge(real), judge(made))
    assert verdict > 1.2
    assert features > 0
    assert float(deceiving_losses(judge(real), judge(real))[1].detach()) == 0
