"""A codec that works at the frame rate: log-mel spectra in, one short spectrum a frame out.

ConvNeXt blocks over the frames on both sides of residual vector quantisation, then an inverse
Fourier transform with overlapping windows, in the manner of Vocos (Siuzdak 2023, arXiv:2306.00814).
Only two Fourier transforms a frame run at the sample rate: a tenth of EnCodec's arithmetic.

Frame t covers the samples from ``t * hop`` to ``t * hop + window``: the encoder reads those, the
decoder adds its spectrum there. The decoder is causal, so the first ``hop`` of these samples are
complete as soon as frame t is decoded, and a stream returns them without delay.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.codecs.excitation import Excitation
from models.codecs.frame_conv import FrameConv
from models.codecs.interface import Codec
from models.codecs.mel import mel_filters
from models.codecs.quantizer import Quantizer, check_samples
from models.codecs.speech_prior import SpeechPrior
from models.codecs.streaming import DecoderState
from models.config import SpectralCodecConfig

_EPS = 1e-6  # of every norm
MAGNITUDE_FLOOR = 1e-3  # before their logarithm
_MAX_MAGNITUDE = 1e3  # larger magnitudes are clamped, so that no code decodes to infinity
# Mean and standard deviation of the log-mel magnitudes of speech, to normalise the input with.
_MEAN = -3.0
_DEVIATION = 2.2


class _FrameBlock(nn.Module):
    """A 1-D ConvNeXt block: depthwise convolution over time, then an MLP on each frame."""

    def __init__(self, config: SpectralCodecConfig, layers: int, *, causal: bool) -> None:
        super().__init__()
        width = config.width
        self.over_time = FrameConv(width, width, causal=causal, groups=width)
        self.norm = nn.LayerNorm(width, eps=_EPS)
        self.up = nn.Linear(width, config.ffn)
        self.down = nn.Linear(config.ffn, width)
        self.scale = nn.Parameter(torch.full((width,), 1 / layers))

    def forward(self, x: Tensor, state: DecoderState | None) -> Tensor:
        y = self.norm(self.over_time(x, state))
        return x + self.scale * self.down(F.silu(self.up(y)))


class _FrameNetwork(nn.Module):
    """ConvNeXt blocks over frames: ``[B, T, channels_in]`` to ``[B, T, channels_out]``."""

    def __init__(
        self,
        config: SpectralCodecConfig,
        channels_in: int,
        channels_out: int,
        layers: int,
        *,
        causal: bool,
    ) -> None:
        super().__init__()
        width = config.width
        self.embed = FrameConv(channels_in, width, causal=causal, groups=1)
        self.first_norm = nn.LayerNorm(width, eps=_EPS)
        blocks = nn.ModuleList(_FrameBlock(config, layers, causal=causal) for _ in range(layers))
        self.blocks = cast("list[_FrameBlock]", blocks)
        self.last_norm = nn.LayerNorm(width, eps=_EPS)
        self.out = nn.Linear(width, channels_out)

    def forward(self, x: Tensor, state: DecoderState | None = None) -> Tensor:
        x = self.first_norm(self.embed(x, state))
        for block in self.blocks:
            x = block(x, state)
        return self.out(self.last_norm(x))


class SpectralCodec(Codec):
    """The codec."""

    config: SpectralCodecConfig
    window: Tensor
    mel: Tensor

    def __init__(self, config: SpectralCodecConfig) -> None:
        super().__init__()
        self.config = config
        self.prior: SpeechPrior | None = None
        """Restores what recordings lack before they are encoded; None: nothing does."""
        bins = config.window // 2 + 1
        self.encoder = _FrameNetwork(
            config, config.bands, config.dimension, config.encoder_layers, causal=False
        )
        self.decoder = _FrameNetwork(
            config, config.dimension, 5 * bins, config.decoder_layers, causal=True
        )
        self.quantizer = Quantizer(config)
        # Both follow from the config and are in no file.
        window = torch.hann_window(config.window)
        self.register_buffer("window", window, persistent=False)
        filters = mel_filters(config.bands, config.window, config.sample_rate_hz)
        self.register_buffer("mel", filters / filters.sum(1, keepdim=True), persistent=False)
        self.excitation = Excitation(config, window)

    @torch.inference_mode()
    def encode(self, samples: Tensor, *, as_it_is: bool = False) -> Tensor:
        """Return codes; see `models.codecs.interface.Codec`."""
        check_samples(samples)
        spectra = self.log_mel(samples[None])
        if self.prior is not None and not as_it_is:
            spectra = self.prior.restored(spectra[0])[None]
        return self.quantizer.encode(self.encoder(_normalised(spectra))[0])

    def normalised_log_mel(self, samples: Tensor) -> Tensor:
        """Return normalised log-mel spectra ``[B, ceil(N / hop), bands]`` of samples ``[B, N]``."""
        return _normalised(self.log_mel(samples))

    def log_mel(self, samples: Tensor) -> Tensor:
        """Return logarithms of mel magnitudes ``[B, ceil(N / hop), bands]``."""
        hop = self.config.hop
        window = self.config.window
        frames = -(-samples.shape[-1] // hop)
        padded = F.pad(samples, (0, (frames - 1) * hop + window - samples.shape[-1]))
        pieces = padded.unfold(-1, window, hop) * (self.window * self.config.gain)
        magnitudes = torch.fft.rfft(pieces, norm="ortho").abs() @ self.mel.T
        return magnitudes.clamp(min=MAGNITUDE_FLOOR).log()

    def sound(self, latent: Tensor, state: DecoderState | None = None) -> Tensor:
        """Return the samples of a latent ``[B, T, D]``; differentiable. See `Codec.sound`."""
        pitch_hz = self.excitation.pitch(latent, state)
        out = self.decoder(latent, state)
        return self.shaped(out, pitch_hz, state, noise_gain=self.config.noise_gain)

    def shaped(
        self,
        out: Tensor,
        pitch_hz: Tensor,
        state: DecoderState | None = None,
        pulse_positions: Tensor | None = None,
        *,
        noise_gain: float = 1.0,
    ) -> Tensor:
        """Return the samples ``[B, T * hop]`` of an excitation of pulses and noise, shaped.

        Args:
            out: The decoder network's output ``[B, T, 5 * bins]``: the logarithm of the gain of
                harmonics, the angle that they are rotated by, the logarithm of the gain of all
                else, and real and imaginary part of what that is beside noise.
            pitch_hz: ``[B, T]``.
            state: Streaming state, updated; None: the input is a whole utterance.
            pulse_positions: As `Excitation` takes them; given in training.
            noise_gain: Noise is multiplied by it.
        """
        voiced, turned, breathed, real, imaginary = out.float().chunk(5, -1)
        pulses, noise = self.excitation(pitch_hz, state, pulse_positions)
        # Not all that is not periodic is noise: clicks and onsets have phases of their own.
        noise = noise_gain * noise + torch.complex(real, imaginary)
        spectra = torch.polar(voiced.exp().clamp(max=_MAX_MAGNITUDE), turned) * pulses
        spectra = spectra + breathed.exp().clamp(max=_MAX_MAGNITUDE) * noise
        frames = torch.fft.irfft(spectra, self.config.window, norm="ortho") * self.window
        return self._overlap(frames, state) / self.config.gain

    def _overlap(self, frames: Tensor, state: DecoderState | None) -> Tensor:
        """Overlap-add windows ``[B, T, window]``; return the complete samples ``[B, T * hop]``."""
        count = frames.shape[1]
        hop = self.config.hop
        parts = frames.view(len(frames), count, -1, hop)  # [B, T, window / hop, hop]
        reach = parts.shape[2]
        total = frames.new_zeros(len(frames), count + reach - 1, hop)
        for part in range(reach):
            total[:, part : part + count] += parts[:, :, part]
        if state is not None:
            if self in state:
                total[:, : reach - 1] += state[self]
            state[self] = total[:, count:]
        return total[:, :count].flatten(1)


def _normalised(spectra: Tensor) -> Tensor:
    return (spectra - _MEAN) / _DEVIATION
