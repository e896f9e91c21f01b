"""What clean speech looks like: restores what a recording lacks before a codec hears it.

What people upload has passed through telephones, rooms and noise, and the model would take all that
for the voice. Bands that were cut off, and moments in which noise is louder than speech, are
*missing features*: each is replaced by its mean given the bands that can be heard, under one
Gaussian over log-mel spectra of speech (Raj, Seltzer and Stern 2004, "Reconstruction of missing
features for robust speech recognition"). Speech that lacks nothing passes unchanged.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

_FRAMES_AT_ONCE = 256
_REGULARISATION = 0.05  # nats squared, added to the variance of what is heard
_SMOOTHED_FRAMES = 5  # over which power is averaged before its lowest tells the noise
_NOISE_QUANTILE = 0.08
_NOISE_BIAS = 1.5  # the lowest power is below the noise's mean
_HEARD_RATIO = 3.0  # of power to that of noise, above which a band counts as heard
_HEARD_MIN = 6  # bands; a frame with fewer is a pause
# Clean speech is 3 nats (26 dB) and more over its own lowest power, in the mean over bands.
_CLEAR = 2.2
_CLEAR_BANDS = 0.05, 0.8  # of all, from the lowest
_CUT_NEAR_FLOOR = 0.3  # nats: speech that is no louder in a band was cut off there
_SPEECH_BANDS = 0.05, 0.4  # which tell speech from pauses, in any recording
_SPEECH_SHARE = 0.7  # of the frames are taken for speech
_LOWEST_CUT = 0.2  # of the bands are always left
_WHOLE = 0.94  # of the bands: speech itself may have no more
_EDGE_BANDS = 2  # next to the cut are missing too: filters are not that steep


@dataclass(frozen=True)
class SpeechPrior:
    """A Gaussian over clean frames: natural logarithms of mel magnitudes, at least ``floor``.

    ``mean`` is ``[B]`` float64, ``covariance`` ``[B, B]``.
    """

    mean: Tensor
    covariance: Tensor
    floor: float

    def restored(self, spectra: Tensor) -> Tensor:
        """Return spectra ``[T, B]`` of a recording without noise, with what is missing."""
        given = spectra.cpu().double()
        power = (2 * given).exp()
        kept = self._kept_bands(given)
        noise = self._noise(power, kept)
        heard = power > _HEARD_RATIO * noise
        clean = torch.where(noise > 0, (power - noise).clamp(min=1e-12).log() / 2, given)
        clean = torch.where(heard, clean, given).clamp(min=self.floor)
        limit = given.clone()
        heard[:, kept:] = False
        limit[:, kept:] = torch.inf  # nothing can be heard there: it may have been loud
        filled = clean.clone()  # frames that lack nothing stay; clean speech has no others
        for lacking in torch.split(torch.nonzero(~heard.all(1))[:, 0], _FRAMES_AT_ONCE):
            filled[lacking] = self._filled(clean[lacking], heard[lacking])
        pause = heard.sum(1, keepdim=True) < min(_HEARD_MIN, kept)
        filled = torch.where(pause, self.floor, filled)
        restored = torch.where(heard & ~pause, clean, filled.minimum(limit))
        return restored.clamp(min=self.floor).to(spectra)

    def _noise(self, power: Tensor, kept: int) -> Tensor:
        """Return the power of steady noise in each band ``[B]``; 0 if speech is clear of it."""
        reach = _SMOOTHED_FRAMES // 2
        padded = F.pad(power.T[None], (reach, reach), mode="replicate")
        smooth = F.avg_pool1d(padded, _SMOOTHED_FRAMES, 1)[0]
        noise = _NOISE_BIAS * smooth.quantile(_NOISE_QUANTILE, dim=1)
        over_noise = (power.mean(0) / noise).log() / 2
        clear = over_noise[:kept][self._bands(_CLEAR_BANDS)].mean() > _CLEAR
        return torch.zeros_like(noise) if clear else noise

    def _kept_bands(self, spectra: Tensor) -> int:
        """Return how many bands from the lowest on a recording has; all, if none was cut off."""
        count = len(self.mean)
        loudness = spectra[:, self._bands(_SPEECH_BANDS)].mean(1)
        speech = spectra[loudness >= loudness.quantile(1 - _SPEECH_SHARE)].mean(0)
        present = torch.nonzero(speech > self.floor + _CUT_NEAR_FLOOR)
        kept = int(present[-1]) + 1 if len(present) else count
        if kept >= _WHOLE * count:
            return count
        return max(round(_LOWEST_CUT * count), kept - _EDGE_BANDS)

    def _bands(self, shares: tuple[float, float]) -> slice:
        """Return the bands between two shares of all."""
        return slice(*(round(share * len(self.mean)) for share in shares))

    def _filled(self, spectra: Tensor, heard: Tensor) -> Tensor:
        """Return the mean of all bands ``[T, B]`` given those heard, of frames ``[T, B]``."""
        mask = heard.double()
        both = mask[:, :, None] * mask[:, None, :]
        # What is not heard is a dimension of its own, without a part in the solution.
        variance = both * self.covariance + torch.diag_embed(1 - mask + _REGULARISATION * mask)
        solved = torch.linalg.solve(variance, mask * (spectra - self.mean))
        return self.mean + solved @ self.covariance
