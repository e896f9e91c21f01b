"""Reading of uploaded recordings: untrusted audio files made ready to be voices.

Nothing in the file is trusted before it is checked: neither length nor rate nor samples. A small
file can decode to hours of audio, so it is decoded a block at a time, and to a limit.
"""

import io
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from models.voices.libav import LibavError, LibavFile, Samples, libav_format
from models.voices.loudness import loudness_lufs
from models.voices.quality import quality_warnings

MIN_S, MAX_S = 1.0, 30.0
LONGEST_S: Final = 600.0
"""Of a longer file only this much is looked at for the best seconds."""

MAX_AUDIO_S: Final = 12.0
"""The longest prompt."""

MIN_RATE_HZ, MAX_RATE_HZ = 8_000, 192_000
MAX_KEPT_RATE_HZ: Final = 48_000
LEVEL_LUFS: Final = -26.0
"""Loudness that recordings are normalised to: that of the built-in models' training data."""

_MAX_CHANNELS = 2
_PEAK = 0.98
_SILENT_LUFS = -60.0
_SILENT_BELOW_DB = -45.0  # relative to the loudest 10 ms
_BEFORE_S, _AFTER_S = 0.05, 0.10  # silence kept at the ends, as in the training data
_CLIPPED_SHARE = 0.002
_LEVELS_A_SECOND = 100
_PAUSE_DB, _PAUSE_PARTS = -25.0, 20  # how much softer a pause is, and how many parts it lasts
_CODECS = {"wav": ("pcm_",), "flac": ("flac",), "ogg": ("vorbis", "opus"), "mp3": ("mp3",)}
"""What the names of libav's codecs begin with, for formats that may have others."""

_NO_FORMAT = "send WAV, FLAC, MP3 or OGG (Vorbis or Opus), M4A or WebM"


class RecordingError(ValueError):
    """The recording cannot be used as a voice; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording that can be used as a voice."""

    samples: Samples  # [N] in [-1, 1], mono, trimmed, at `LEVEL_LUFS`
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


def read_recording(content: bytes, start_s: float | None = None) -> Recording:
    """Read an uploaded file of a format of `models.voices.libav`.

    Averages the channels, trims silence at both ends, normalises loudness to `LEVEL_LUFS`, and
    resamples rates over 48 kHz. Of a file longer than `MAX_S` the best seconds are taken, unless
    ``start_s`` says where to begin. Raises RecordingError if the file is of another format or
    damaged, or the audio is too short, too quiet or clipped, or has too many channels or an unusual
    sample rate.
    """
    import soxr

    samples, rate_hz = _decode(content, start_s)
    if not np.isfinite(samples).all():
        raise RecordingError("it has NaN or infinite samples")
    samples = _trim(samples, rate_hz)
    _check_length(len(samples) / rate_hz, " without the silence around it")
    _check_clipping(samples)
    samples = _normalise(samples, rate_hz)
    if rate_hz > MAX_KEPT_RATE_HZ:
        samples = soxr.resample(samples, rate_hz, MAX_KEPT_RATE_HZ)
        rate_hz = MAX_KEPT_RATE_HZ
    warnings = quality_warnings(samples, rate_hz)
    return Recording(np.clip(samples, -1, 1).astype(np.float32), rate_hz, tuple(warnings))


def _decode(content: bytes, start_s: float | None) -> tuple[NDArray[np.float64], int]:
    """Return at most `MAX_S` of mono samples ``[N]`` and their rate."""
    try:
        file = _opened(content)
        rate_hz = file.rate_hz
        _check_header(file.channels, rate_hz)
        if start_s is None:
            start_s = _best_start_s(_levels(file), 1 / _LEVELS_A_SECOND)
        first = round(start_s * rate_hz)
        samples = _part(_opened(content), first, first + round(MAX_S * rate_hz))
    except LibavError as error:
        raise RecordingError(f"it cannot be read; {_NO_FORMAT}") from error
    if start_s and not len(samples):
        raise RecordingError(f"it ends before {start_s:g} s, where it should begin")
    _check_length(len(samples) / rate_hz)
    return samples.astype(np.float64), rate_hz


def _opened(content: bytes) -> LibavFile:
    """Return the file of an upload, by its first bytes."""
    form = libav_format(content)
    if form is None:
        raise RecordingError(_NO_FORMAT)
    file = LibavFile(content, form)
    if not file.codec.startswith(_CODECS.get(form, "")):
        raise RecordingError(f"{form.upper()} with {file.codec} is not supported; {_NO_FORMAT}")
    return file


def _part(file: LibavFile, first: int, until: int, at: int = 0) -> NDArray[np.float32]:
    """Return the samples from one index to before another, decoding no more."""
    parts: list[NDArray[np.float32]] = []
    for block in file.blocks():
        parts.append(block[max(0, first - at) : max(0, until - at)])
        at += len(block)
        if at >= until:
            break
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def _levels(file: LibavFile) -> NDArray[np.float64]:
    """Return the power of each 100th of a second, of the first `LONGEST_S`."""
    window = file.rate_hz // _LEVELS_A_SECOND
    levels: list[NDArray[np.float64]] = []
    rest, count = np.zeros(0, np.float32), 0
    for block in file.blocks():
        rest = np.concatenate([rest, block])
        whole = len(rest) // window * window
        levels.append((rest[:whole].reshape(-1, window).astype(np.float64) ** 2).mean(1))
        rest, count = rest[whole:], count + whole
        if count >= LONGEST_S * file.rate_hz:
            break
    return np.concatenate(levels) if levels else np.zeros(0)


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


def _check_header(channels: int, rate_hz: int) -> None:
    """Refuse channels and rates out of bounds before any audio is decoded."""
    if channels > _MAX_CHANNELS:
        raise RecordingError(f"it has {channels} channels; at most {_MAX_CHANNELS} are accepted")
    if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        raise RecordingError(
            f"its rate is {rate_hz} Hz; {MIN_RATE_HZ:,} to {MAX_RATE_HZ:,} Hz are accepted"
        )


def _check_length(audio_s: float, what: str = "") -> None:
    """Refuse audio that is too short."""
    if audio_s < MIN_S:
        raise RecordingError(f"it has {audio_s:.2f} s{what}; at least {MIN_S:g} s is needed")


def _check_clipping(samples: NDArray[np.float64]) -> None:
    """Refuse clipped audio: peaks that are flat, with equal consecutive samples."""
    height = np.abs(samples)
    top = height[1:] >= 0.98 * height.max()
    flat = np.diff(samples) == 0
    share = float((top & flat).mean())
    if share > _CLIPPED_SHARE:
        raise RecordingError(
            f"it is clipped ({share:.1%} of its samples); record it at a lower level"
        )


def _trim(samples: NDArray[np.float64], rate_hz: int) -> NDArray[np.float64]:
    """Trim silence at both ends, leaving a short rest."""
    window = rate_hz // 100
    blocks = samples[: len(samples) // window * window].reshape(-1, window)
    rms = np.sqrt((blocks**2).mean(axis=1))
    if rms.max() <= 10 ** (_SILENT_LUFS / 20):
        raise RecordingError("it is silent")
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
