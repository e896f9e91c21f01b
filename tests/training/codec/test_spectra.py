import torch

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
