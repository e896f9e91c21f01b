"""What recordings lack is restored from what they have, and clean speech is left alone."""

import math

import pytest
import torch
from torch import Tensor

from models.codecs.spectral import MAGNITUDE_FLOOR, SpectralCodec
from models.codecs.speech_prior import SpeechPrior
from models.config import SpectralCodecConfig

BANDS, FRAMES = 40, 300
FLOOR = math.log(MAGNITUDE_FLOOR)
MEAN = -1.0


@pytest.fixture
def prior() -> SpeechPrior:
    """Neighbouring bands are alike, distant ones less so."""
    places = torch.arange(BANDS, dtype=torch.float64)
    covariance = torch.exp(-((places[:, None] - places) ** 2) / (2 * 12.0**2))
    covariance += 0.02 * torch.eye(BANDS)
    return SpeechPrior(torch.full((BANDS,), MEAN, dtype=torch.float64), covariance, FLOOR)


@pytest.fixture
def speech(prior: SpeechPrior) -> Tensor:
    """Frames as the prior has them, with a pause in every fifth of the time."""
    random = torch.Generator().manual_seed(0)
    draws = torch.randn(FRAMES, BANDS, generator=random, dtype=torch.float64)
    spectra: Tensor = prior.mean + draws @ torch.linalg.cholesky(prior.covariance).T
    spectra[torch.arange(FRAMES) % 60 < 12] = FLOOR
    return spectra.float()


def with_noise(spectra: Tensor) -> Tensor:
    """Add noise that hides the upper half of the bands."""
    level = torch.full((BANDS,), MEAN - 2.0)
    level[BANDS // 2 :] = MEAN + 1.0
    random = torch.Generator().manual_seed(1)
    noise = torch.empty_like(spectra).exponential_(generator=random) * (2 * level).exp()
    return ((2 * spectra).exp() + noise).log() / 2


def error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().mean())


def test_clean_speech_passes_unchanged(prior: SpeechPrior, speech: Tensor) -> None:
    assert torch.equal(prior.restored(speech), speech)


@pytest.mark.parametrize("kept", [12, 20, 32])
def test_bands_that_were_cut_off_are_filled_from_those_that_are_left(
    prior: SpeechPrior, speech: Tensor, kept: int
) -> None:
    cut = speech.clone()
    cut[:, kept:] = FLOOR
    restored = prior.restored(cut)
    talking = speech[:, 0] > FLOOR
    assert torch.equal(restored[:, : kept - 2], cut[:, : kept - 2])
    near = slice(kept, kept + 4)
    assert error(restored[talking, near], speech[talking, near]) < 0.35
    everywhere = error(restored[talking, kept:], speech[talking, kept:])
    assert everywhere < error(torch.full_like(speech, MEAN)[talking, kept:], speech[talking, kept:])


def test_noise_is_taken_away_and_pauses_are_silent_again(
    prior: SpeechPrior, speech: Tensor
) -> None:
    noisy = with_noise(speech)
    restored = prior.restored(noisy)
    talking = speech[:, 0] > FLOOR
    assert error(restored[talking], speech[talking]) < 0.9 * error(noisy[talking], speech[talking])
    assert error(restored[~talking], speech[~talking]) < 0.3 * error(
        noisy[~talking], speech[~talking]
    )


@pytest.mark.parametrize(("bands", "spoken"), [(5, False), (6, True)])
def test_a_frame_in_which_too_few_bands_are_heard_is_a_pause(
    prior: SpeechPrior, speech: Tensor, bands: int, spoken: bool
) -> None:
    noisy = with_noise(speech)
    noisy[30] = FLOOR
    noisy[30, :bands] = MEAN + 2.0
    assert (prior.restored(noisy)[30, 0] > FLOOR) == spoken


def test_nothing_that_was_heard_becomes_louder(prior: SpeechPrior, speech: Tensor) -> None:
    noisy = with_noise(speech)
    assert (prior.restored(noisy) <= noisy + 1e-4).all()


def test_a_moment_of_sound_and_silence_are_restored_too(prior: SpeechPrior) -> None:
    silence = torch.full((FRAMES, BANDS), FLOOR)
    torch.testing.assert_close(prior.restored(silence), silence)
    moment = torch.full((1, BANDS), MEAN)
    assert prior.restored(moment).shape == moment.shape
    assert torch.isfinite(prior.restored(moment)).all()


def test_a_codec_with_a_prior_hears_what_was_restored() -> None:
    torch.manual_seed(0)
    config = SpectralCodecConfig(
        width=16, ffn=24, dimension=8, codes=16, bands=BANDS, encoder_layers=1, decoder_layers=1
    )
    codec = SpectralCodec(config)
    codec.quantizer.codebooks.normal_()
    samples = 0.1 * torch.randn(24_000)
    plain = codec.encode(samples)

    class Deaf(SpeechPrior):
        def restored(self, spectra: Tensor) -> Tensor:
            return torch.full_like(spectra, FLOOR)

    codec.prior = Deaf(torch.zeros(BANDS), torch.eye(BANDS), FLOOR)
    deaf = codec.encode(samples)
    codec.prior = None
    assert deaf.shape == plain.shape
    assert not torch.equal(deaf, plain)
    assert torch.equal(deaf[10:-10], codec.encode(torch.zeros(24_000))[10:-10])
