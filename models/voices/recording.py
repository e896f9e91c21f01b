"""Reading of uploaded recordings: untrusted audio files made ready to be voices.

Nothing in the file is trusted before it is checked: neither length nor rate nor samples. A small
file can decode to hours of audio, so it is decoded a block at a time, and to a limit.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from models.voices.container import (
    MOST_CHANNELS,
    AudioContainer,
    ContainerError,
    libav_format,
)
from models.voices.libav import AudioSamples, FilterGraph
from models.voices.loudness import loudness_lufs
from models.voices.quality import quality_warnings

MIN_S = 1.0
MAX_S = 30.0
LONGEST_S: Final = 600.0
"""Of a longer file only this much is looked at for the best seconds."""

MAX_AUDIO_S: Final = 12.0
"""The longest prompt."""

MIN_RATE_HZ = 8_000
MAX_RATE_HZ = 192_000
MAX_KEPT_RATE_HZ: Final = 48_000
LEVEL_LUFS: Final = -26.0
"""Loudness that recordings are normalised to: that of the built-in models' training data."""

_PEAK = 0.98
_QUIET_DBFS = -60.0  # of the loudest 10 ms
_SILENT_BELOW_DB = -45.0  # relative to the loudest 10 ms
# Silence kept at the ends, as in the training data
_BEFORE_S = 0.05
_AFTER_S = 0.10
_LEAST_STEP = 4 / 32_768  # what never gets louder is silence with the noise of its last bits
_CLIPPED_SHARE = 0.002
_CLIPPED_SIDE = 0.1
# Below the peak, by its height: what is at it, where a wave is slow, and what is looked at.
_CLIPPED_HEIGHT = 0.001
_TURN = 0.02
_TURN_HEIGHT = 0.15
_TURN_VALUES = 3
_SILENT_CHANNEL = 1e-3  # of the power of the loudest: such a channel is left out
_RUMBLE_HZ = 20
_RUMBLE_SHARE = 0.02
# What may be missing: encoders pad, and count in frames
_CUT_S = 0.25
_CUT_SHARE = 0.03
_DAMAGED_SHARE = 0.02
_LEVELS_A_SECOND = 100
_PAUSE_DB = -25.0  # how much softer a pause is
_PAUSE_PARTS = 20  # how many parts it lasts
_NO_FORMAT = "send WAV, FLAC, MP3 or OGG (Vorbis or Opus), M4A or WebM"


class RecordingError(ValueError):
    """The recording cannot be used as a voice; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording that can be used as a voice."""

    samples: AudioSamples  # [N] in [-1, 1], mono, trimmed, at `LEVEL_LUFS`
    rate_hz: int  # at most `MAX_KEPT_RATE_HZ`
    warnings: tuple[str, ...] = ()  # what may spoil the voice

    @property
    def audio_s(self) -> float:
        """Length in seconds."""
        return len(self.samples) / self.rate_hz

    def flac(self) -> bytes:
        """Return a FLAC file of 16 bits."""
        import soundfile

        file = io.BytesIO()
        soundfile.write(file, self.samples, self.rate_hz, format="FLAC", subtype="PCM_16")
        return file.getvalue()


@dataclass(frozen=True, slots=True)
class _Survey:
    """What was found of a file by decoding it once, of which nothing is kept."""

    rate_hz: int
    audio_s: float
    levels: NDArray[np.float64]  # power of each 100th of a second, of the first `LONGEST_S`
    mix: NDArray[np.float32]  # [C]: what each channel is multiplied by
    warnings: tuple[str, ...]


def read_recording(content: bytes, start_s: float | None = None) -> Recording:
    """Read an uploaded file of a format of `models.voices.container`.

    Mixes the channels, takes an offset off, trims silence at both ends, normalises loudness to
    `LEVEL_LUFS`, and resamples rates over 48 kHz. Of a file longer than `MAX_S` the best seconds
    are taken, unless ``start_s`` says where to begin. Raises RecordingError if the file is of
    another format or damaged, or the audio is too short, too quiet or clipped, or has too many
    channels or an unusual sample rate; MemoryError if libav is given no more memory.
    """
    import soxr

    samples, survey = _decode(content, start_s)
    rate_hz = survey.rate_hz
    if not np.isfinite(samples).all():
        raise RecordingError("it has NaN or infinite samples")
    _check_clipping(samples)
    samples = _trim(_centred(samples, rate_hz), rate_hz)
    _check_length(len(samples) / rate_hz, " without the silence around it", survey.warnings)
    samples = _normalise(samples, rate_hz)
    if rate_hz > MAX_KEPT_RATE_HZ:
        samples = soxr.resample(samples, rate_hz, MAX_KEPT_RATE_HZ)
        rate_hz = MAX_KEPT_RATE_HZ
    warnings = *survey.warnings, *quality_warnings(samples, rate_hz)
    return Recording(np.clip(samples, -1, 1).astype(np.float32), rate_hz, warnings)


def _decode(content: bytes, start_s: float | None) -> tuple[NDArray[np.float64], _Survey]:
    """Return at most `MAX_S` of mono samples ``[N]``, and what was found of the file."""
    try:
        survey = _survey(content)
        if start_s is None:
            start_s = _best_start_s(survey.levels, 1 / _LEVELS_A_SECOND)
        first = round(start_s * survey.rate_hz)
        until = first + round(MAX_S * survey.rate_hz)
        samples = _part(_opened(content), first, until, survey.mix)
    except ContainerError as error:
        raise RecordingError(f"{error}; {_NO_FORMAT}") from error
    if start_s and not len(samples):
        raise RecordingError(f"it ends before {start_s:g} s, where it should begin")
    _check_length(len(samples) / survey.rate_hz, "", survey.warnings)
    return samples.astype(np.float64), survey


def _opened(content: bytes) -> AudioContainer:
    """Return the file of an upload, by its first bytes; its channels and rate are in bounds."""
    form = libav_format(content)
    if form is None:
        raise RecordingError(_NO_FORMAT)
    file = AudioContainer(content, form)
    if file.channels > MOST_CHANNELS:
        raise RecordingError(f"it has {file.channels} channels; at most {MOST_CHANNELS} are mixed")
    if not MIN_RATE_HZ <= file.rate_hz <= MAX_RATE_HZ:
        raise RecordingError(
            f"its rate is {file.rate_hz} Hz; {MIN_RATE_HZ:,} to {MAX_RATE_HZ:,} Hz are accepted"
        )
    return file


def _part(
    file: AudioContainer, first: int, until: int, mix: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the samples from one index to before another, mono, decoding no more."""
    parts: list[NDArray[np.float32]] = []
    at = 0
    for block in file.blocks():
        parts.append(mix @ block[:, max(0, first - at) : max(0, until - at)])
        at += block.shape[1]
        if at >= until:
            break
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


@np.errstate(invalid="ignore", over="ignore")  # samples that are no numbers are refused later
def _survey(content: bytes) -> _Survey:
    """Decode a file up to `LONGEST_S`, holding a block at a time."""
    file = _opened(content)
    window = file.rate_hz // _LEVELS_A_SECOND
    channels = file.channels
    levels: list[NDArray[np.float64]] = []
    rest = np.zeros((channels, 0))
    count = 0
    sums = np.zeros(channels)
    products = np.zeros((channels, channels))
    for block in file.blocks():
        samples = block.astype(np.float64)
        sums += samples.sum(axis=1)
        # Not by BLAS, whose threads cost more than so small a product
        products += np.einsum("cn,dn->cd", samples, samples)
        rest = np.concatenate([rest, samples], axis=1)
        whole = rest.shape[1] // window * window
        # Without their mean: an offset is no level.
        parts = rest[:, :whole].reshape(channels, -1, window)
        levels.append(parts.var(axis=2).mean(axis=0))
        rest = rest[:, whole:]
        count += samples.shape[1]
        if count >= LONGEST_S * file.rate_hz:
            break
    count = max(1, count)
    covariance = products / count - np.outer(sums, sums) / count**2
    return _Survey(
        rate_hz=file.rate_hz,
        audio_s=count / file.rate_hz,
        levels=np.concatenate(levels) if levels else np.zeros(0),
        mix=_mix(covariance, file.is_full_band),
        warnings=tuple(_losses(file, count / file.rate_hz)),
    )


def _mix(covariance: NDArray[np.float64], is_full_band: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return what each channel ``[C]`` is multiplied by to give mono sound."""
    # The average of those with sound in them. Where they cancel each other, as opposite phases do,
    # it has less than half the power that unrelated channels have: then the first loud one alone.
    power = np.where(is_full_band | (len(covariance) == 1), covariance.diagonal(), 0.0)
    if not np.isfinite(covariance).all() or power.max() <= 0:
        return np.full(len(covariance), 1 / len(covariance), np.float32)
    active = power > _SILENT_CHANNEL * power.max()
    mix = active / active.sum()
    if mix @ covariance @ mix < power[active].mean() / active.sum() / 2:
        mix = np.arange(len(mix)) == int(np.argmax(power >= power.max() / 2))
    return mix.astype(np.float32)


def _losses(file: AudioContainer, audio_s: float) -> Iterator[str]:
    """Yield a sentence for what is missing of a file that was decoded to its end."""
    if not file.is_complete:
        return
    stated_s = file.stated_s
    if stated_s is not None and stated_s - audio_s > max(_CUT_S, _CUT_SHARE * stated_s):
        yield f"the file is cut: {audio_s:.1f} of {stated_s:.1f} s"
    elif file.lacks_end:
        yield f"the file is cut: it ends after {audio_s:.1f} s, and has no last page"
    if file.damaged > max(1, _DAMAGED_SHARE * file.packets):
        yield f"the file is damaged: {file.damaged} of its {file.packets} packets cannot be read"


def _best_start_s(power: NDArray[np.float64], each_s: float) -> float:
    """Return where the best seconds of a file begin: after a pause, with speech and few pauses."""
    if len(power) * each_s <= MAX_S or not np.isfinite(power).all():
        return 0.0
    active = power > max(np.percentile(power, 95) * 10 ** (_PAUSE_DB / 10), 1e-12)
    before = np.convolve(active, np.ones(_PAUSE_PARTS), "full")[: len(active)] - active
    begins = np.flatnonzero(active & (before == 0))
    room = len(active) - round(MAX_AUDIO_S / each_s)
    begins = begins[begins <= room]
    if not len(begins):
        return 0.0
    spoken = np.concatenate([[0], np.cumsum(active)])
    shares = sum(
        (spoken[np.minimum(begins + round(part_s / each_s), len(active))] - spoken[begins]) / part_s
        for part_s in (3.0, MAX_AUDIO_S)
    )
    return max(0.0, float(begins[int(np.argmax(shares))]) * each_s - _BEFORE_S)


def _check_length(audio_s: float, what: str, warnings: Sequence[str]) -> None:
    """Refuse audio that is too short; what is missing of the file may be the reason."""
    if audio_s < MIN_S:
        short = f"it has {audio_s:.2f} s{what}; at least {MIN_S:g} s is needed"
        raise RecordingError("; ".join([short, *warnings]))


def _check_clipping(samples: NDArray[np.float64]) -> None:
    """Refuse clipped audio: more samples at its highest or lowest value than just before it."""
    least = _CLIPPED_SIDE * float(np.abs(samples - samples.mean()).max())
    share = _at_peak(samples, least) + _at_peak(-samples, least)
    if share > _CLIPPED_SHARE:
        raise RecordingError(
            f"it is clipped ({share:.1%} of its samples); record it at a lower level"
        )


def _at_peak(samples: NDArray[np.float64], least: float) -> float:
    """Return the share of samples at the highest value, 0 if a wave turns round there by itself."""
    # Of a sine, which does so slowest, a quarter as many are in the uppermost thousandth as in the
    # next 2 %. Of few bits at least three values are looked at. What is less than ``least`` above
    # the mean is no side of a wave.
    peak = float(samples.max())
    height = peak - float(samples.mean())
    if height <= least:
        return 0.0
    upper = samples[samples > peak - _TURN_HEIGHT * height]
    values = np.unique(upper)
    flat = int((upper >= peak - _CLIPPED_HEIGHT * height).sum())
    below = int((upper >= peak - _TURN * height).sum()) - flat
    if len(values) >= _TURN_VALUES:
        below = max(below, int((upper >= values[-_TURN_VALUES]).sum()) - flat)
    return flat / len(samples) if flat > 2 * below else 0.0


def _centred(samples: NDArray[np.float64], rate_hz: int) -> NDArray[np.float64]:
    """Take off an offset, and one that wanders, below what voices have."""
    samples = samples - samples.mean()
    window = rate_hz // _RUMBLE_HZ
    slow = samples[: len(samples) // window * window].reshape(-1, window).mean(axis=1)
    if slow.var() <= _RUMBLE_SHARE * samples.var():
        return samples
    # Begun earlier, with the same turned round: the first sample would be a step to it.
    before = 2 * samples[0] - samples[rate_hz // 2 : 0 : -1]
    graph = FilterGraph([("highpass", f"f={_RUMBLE_HZ}")], rate_hz)
    parts = [graph.push(np.concatenate([before, samples]).astype(np.float32)), graph.close()]
    return np.concatenate(parts)[len(before) :].astype(np.float64)


def _trim(samples: NDArray[np.float64], rate_hz: int) -> NDArray[np.float64]:
    """Trim silence at both ends, leaving a short rest."""
    window = rate_hz // 100
    blocks = samples[: len(samples) // window * window].reshape(-1, window)
    rms = np.sqrt((blocks**2).mean(axis=1))
    if np.abs(samples).max() <= _LEAST_STEP:
        raise RecordingError("it is silent")
    if rms.max() <= 10 ** (_QUIET_DBFS / 20):
        loudest = 20 * np.log10(rms.max())
        raise RecordingError(
            f"it is too quiet: its loudest part has {loudest:.0f} dBFS, at least {_QUIET_DBFS:g}"
            " is needed; record it at a higher level"
        )
    loud = np.flatnonzero(rms > rms.max() * 10 ** (_SILENT_BELOW_DB / 20))
    start = int(loud[0]) * window - round(_BEFORE_S * rate_hz)
    end = (int(loud[-1]) + 1) * window + round(_AFTER_S * rate_hz)
    return samples[max(0, start) : end]


def _normalise(samples: NDArray[np.float64], rate_hz: int) -> NDArray[np.float64]:
    """Normalise loudness to `LEVEL_LUFS`, or as close as the peaks allow."""
    # Measured at full scale: the absolute gate of ITU-R BS.1770 would drop quiet speech.
    samples = samples / np.abs(samples).max()
    lufs = loudness_lufs(samples, rate_hz)
    if not np.isfinite(lufs):
        raise RecordingError("it is silent but for some clicks")
    return samples * min(10 ** ((LEVEL_LUFS - lufs) / 20), _PEAK)
