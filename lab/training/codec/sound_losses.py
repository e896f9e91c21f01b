"""What pulls at the codec's samples: spectra that differ, and a discriminator that tells.

Each loss is given a fixed share of the gradient by the samples, whatever its own scale is, as by
EnCodec's balancer (Défossez et al. 2022, arXiv:2210.13438).
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lab.training.codec.discriminator import Discriminator, deceiving_losses, judging_loss
from lab.training.codec.spectra import Magnitudes, Spectra
from models.config import SpectralCodecConfig

SPECTRA_SHARE, VERDICT_SHARE, FEATURES_SHARE = 1.0, 0.5, 1.0
PHASE_SHARE = 1.0  # where it is known where the teacher's pulses stand
PHASE_WINDOW, PHASE_TOP_HZ = 1024, 4000
PHASE_COMPRESSION = 0.5  # exponent of magnitudes that phases are weighted by
MAGNITUDE_WEIGHT = 0.1  # it wants the mean where there is noise, and thus less of it
JUDGE_RATE = 5e-4
PITCH_WEIGHT, PITCH_CHANGE_WEIGHT = 1.0, 4.0  # of octaves that pitch, and its change, are off
BAND_EDGE = 0.06  # of a band's upper end, below which it falls to nothing
BREATH_SHARE = 0.5  # of the gradient by what the decoder's network gives
BELOW_BREATH = 2.0  # nepers: so far shall pulses lie below noise where there is no pitch


class SoundLosses:
    """Spectral distance, and a discriminator that learns on the way."""

    def __init__(
        self,
        config: SpectralCodecConfig,
        judged_clips: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.config, self.judged_clips = config, judged_clips
        self.device, self.dtype = device, dtype
        self.spectra = Spectra(config.sample_rate_hz, device)
        self.judge = Discriminator().to(device)
        self.optimizer = torch.optim.AdamW(
            self.judge.parameters(), lr=JUDGE_RATE, betas=(0.8, 0.99), weight_decay=0.01
        )

    def distances(
        self, samples: Tensor, heard: Tensor, bands_hz: Tensor
    ) -> tuple[Magnitudes, Magnitudes, Tensor, Tensor]:
        """Return the magnitudes of both ``[B, N]``, and their log-mel and relative distance.

        Above ``bands_hz`` ``[B]`` nothing is heard of either.
        """
        # The first frames lack those before them, whose windows reach into them.
        cut, gain = self.config.window - self.config.hop, self.config.gain
        rate_hz = self.config.sample_rate_hz
        wanted, given = (
            self.spectra.magnitudes(below(part * gain, bands_hz, rate_hz))
            for part in (samples[:, cut : heard.shape[1]], heard[:, cut:])
        )
        return wanted, given, *self.spectra.distance(wanted, given)

    def phase_distance(self, samples: Tensor, heard: Tensor) -> Tensor:
        """Return one less the cosine of what phases are off by, louder bins counting for more.

        Magnitudes do not tell how harmonics stand to each other, and the ear does hear it. Only
        phases are compared: what cannot be known would else be made softer.
        """
        cut = self.config.window - self.config.hop
        top = PHASE_TOP_HZ * PHASE_WINDOW // self.config.sample_rate_hz
        window = torch.hann_window(PHASE_WINDOW, device=heard.device) / PHASE_WINDOW**0.5
        wanted, given = (
            torch.stft(
                x * self.config.gain,
                PHASE_WINDOW,
                PHASE_WINDOW // 4,
                window=window,
                return_complex=True,
            )[:, :top]
            for x in (samples[:, cut : heard.shape[1]], heard[:, cut:])
        )
        size, made = ((x.real.square() + x.imag.square() + 1e-6).sqrt() for x in (wanted, given))
        agreement = (wanted * given.conj()).real / (size * made)
        weight = size**PHASE_COMPRESSION
        return (weight * (1 - agreement)).sum() / weight.sum()

    def pull(
        self,
        samples: Tensor,
        heard: Tensor,
        losses: dict[str, Tensor],
        *,
        judged: bool,
        known: Tensor,
        bands_hz: Tensor,
    ) -> Tensor:
        """Return the gradient of all losses by ``heard`` ``[B, N]``; add the losses of this batch.

        ``samples``, what was to be heard, are longer by what the last frames reach further.
        If ``judged``, the discriminator listens, too; ``known`` ``[B]`` are clips whose
        pulses stand where the teacher's do, ``bands_hz`` ``[B]`` above what there is nothing to
        compare with.
        """
        wanted, given, losses["mel"], losses["magnitude"] = self.distances(samples, heard, bands_hz)
        pulls = [(losses["mel"] + MAGNITUDE_WEIGHT * losses["magnitude"], SPECTRA_SHARE)]
        if judged:
            verdict, features = self._judged(wanted, given, losses)
            pulls += [(verdict, VERDICT_SHARE), (features, FEATURES_SHARE)]
        if known.any():
            losses["phase"] = self.phase_distance(samples[known], heard[known])
            pulls.append((losses["phase"], PHASE_SHARE))
        total = torch.zeros_like(heard)
        for loss, share in pulls:
            (grad,) = torch.autograd.grad(loss, heard, retain_graph=True)
            total += share * grad / (grad.norm() + 1e-12)
        return total

    def _judged(
        self, wanted: Magnitudes, given: Magnitudes, losses: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Let the discriminator learn from some clips, and return what it says of them."""
        some = {size: part[: self.judged_clips] for size, part in given.items()}
        with torch.autocast(self.device.type, self.dtype, self.dtype != torch.float32):
            real = self.judge({size: part[: self.judged_clips] for size, part in wanted.items()})
            fooled = self.judge({size: part.detach() for size, part in some.items()})
            losses["judge"] = judging_loss(real, fooled)
            self.optimizer.zero_grad(set_to_none=True)
            losses["judge"].backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.judge.requires_grad_(requires_grad=False)
            losses["verdict"], losses["features"] = deceiving_losses(real, self.judge(some))
            self.judge.requires_grad_(requires_grad=True)
        return losses["verdict"], losses["features"]

    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to go on."""
        return {"judge": self.judge.state_dict(), "judge_optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.judge.load_state_dict(state["judge"])
        self.optimizer.load_state_dict(state["judge_optimizer"])


def below(x: Tensor, bands_hz: Tensor, sample_rate_hz: int) -> Tensor:
    """Return ``x`` ``[B, N]`` without what lies above ``bands_hz`` ``[B]``.

    A recording of 16 kHz does not say what was above 8: neither that it was silent.
    """
    if bool((bands_hz >= sample_rate_hz / 2).all()):
        return x
    spectrum = torch.fft.rfft(x)
    count = spectrum.shape[-1]
    frequencies = torch.linspace(0, sample_rate_hz / 2, count, device=x.device)
    edge = (bands_hz[:, None] - frequencies) / (BAND_EDGE * bands_hz[:, None])
    gain = torch.where(bands_hz[:, None] >= sample_rate_hz / 2, 1.0, edge.clamp(0, 1))
    return torch.fft.irfft(spectrum * gain, x.shape[-1])


def pitch_loss(predicted_hz: Tensor, pitch_hz: Tensor) -> Tensor:
    """Return by how many octaves pitch ``[B, T]`` and its change are off, where there is a pitch.

    Absolute ones: who measured it is now and then an octave off, and shall not be followed there.
    """
    voiced = pitch_hz > 0
    known_hz = torch.where(voiced, pitch_hz, 1.0)
    off = torch.where(voiced, torch.log2(predicted_hz) - torch.log2(known_hz), 0.0)
    both = voiced[:, 1:] & voiced[:, :-1]
    changes = ((off[:, 1:] - off[:, :-1]).abs() * both).sum() / both.sum().clamp(min=1)
    level = off.abs().sum() / voiced.sum().clamp(min=1)
    return PITCH_WEIGHT * level + PITCH_CHANGE_WEIGHT * changes


def breath_loss(out: Tensor, pitch_hz: Tensor) -> Tensor:
    """Return by how many nepers pulses are too loud beside noise where there is no pitch.

    Spectra alone do not tell them apart: pulses whose phases flicker pass for noise, and buzz.
    ``out`` is what the decoder's network gave, ``[B, T, 5 * bins]``, the pitch ``[B, T]`` is 0
    where there is none, below 0 where it is not known.
    """
    # Beginnings and endings count as voice, and so does what nothing is known of.
    voiced = F.max_pool1d((pitch_hz != 0).float(), 3, 1, 1)
    pulses, _, noise, *_ = out.float().chunk(5, -1)
    too_loud = F.relu(pulses - noise + BELOW_BREATH).mean(-1) * (1 - voiced)
    return too_loud.sum() / (1 - voiced).sum().clamp(min=1)


def with_breath(pull: Tensor, breath: Tensor, out: Tensor) -> Tensor:
    """Return the gradient by ``out`` with that of `breath_loss`, which fades as the loss does."""
    (grad,) = torch.autograd.grad(breath, out, retain_graph=True)
    share = BREATH_SHARE * breath.detach().clamp(max=1.0)
    return pull + grad * (share * pull.norm() / (grad.norm() + 1e-12))
