"""Reading of uploaded recordings: untrusted audio files made ready to be voices.

Nothing in the file is trusted before it is checked: neither length nor rate nor samples. A small
file can decode to hours of audio, so at most one sample more than allowed is decoded.
"""

import io
from dataclasses import dataclass
from typing import Final

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from models.voices.loudness import loudness_lufs
from models.voices.mp3 import Mp3Error, Mp3TooLong, looks_like_mp3, read_mp3

MIN_S, MAX_S = 1.0, 30.0
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
_FORMATS = {
    "WAV": {"PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ALAW", "ULAW"},
    "WAVEX": {"PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ALAW", "ULAW"},
    "FLAC": {"PCM_S8", "PCM_16", "PCM_24"},
    "OGG": {"VORBIS", "OPUS"},
}
_TOO_LONG = f"it is longer than {MAX_S:g} s"
_NO_FORMAT = "send WAV, FLAC, MP3 or OGG (Vorbis or Opus)"

Samples = NDArray[np.float32]
"""``[N]``, mono."""


class RecordingError(ValueError):
    """The recording cannot be used as a voice; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording that can be used as a voice.

    Args:
        samples: ``[N]`` in [-1, 1], mono, trimmed, at `LEVEL_LUFS`.
        rate_hz: At most `MAX_KEPT_RATE_HZ`.
    """

    samples: Samples
    rate_hz: int

    @property
    def audio_s(self) -> float:
        """Length in seconds."""
        return len(self.samples) / self.rate_hz

    def flac(self) -> bytes:
        """Return a FLAC file of 16 bits."""
        file = io.BytesIO()
        soundfile.write(file, self.samples, self.rate_hz, format="FLAC", subtype="PCM_16")
        return file.getvalue()


def read_recording(content: bytes) -> Recording:
    """Read an uploaded file.

    Averages the channels, trims silence at both ends, normalises loudness to `LEVEL_LUFS`, and
    resamples rates over 48 kHz.

    Args:
        content: A WAV, FLAC, MP3 or OGG file.

    Raises:
        RecordingError: The file is of another format or damaged, or the audio is too short, too
            long, too quiet or clipped, or has too many channels or an unusual sample rate.
    """
    samples, rate_hz = _decode(content)
    if not np.isfinite(samples).all():
        raise RecordingError("it has NaN or infinite samples")
    samples = _trim(samples, rate_hz)
    _check_length(len(samples) / rate_hz, " without the silence around it")
    _check_clipping(samples)
    samples = _normalise(samples, rate_hz)
    if rate_hz > MAX_KEPT_RATE_HZ:
        samples = soxr.resample(samples, rate_hz, MAX_KEPT_RATE_HZ)
        rate_hz = MAX_KEPT_RATE_HZ
    return Recording(np.clip(samples, -1, 1).astype(np.float32), rate_hz)


def _decode(content: bytes) -> tuple[NDArray[np.float64], int]:
    """Return mono samples ``[N]`` and their rate.

    Raises:
        RecordingError: The format is not accepted, or its header is out of bounds.
    """
    if looks_like_mp3(content):
        return _decode_mp3(content)
    if not _looks_known(content):
        raise RecordingError(_NO_FORMAT)
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            _check_format(file)
            _check_header(file.channels, file.samplerate)
            if file.frames > MAX_S * file.samplerate:
                _check_length(file.frames / file.samplerate)
            rate_hz = int(file.samplerate)
            # One sample more than allowed: the length in the header may be missing or wrong.
            samples = file.read(round(MAX_S * rate_hz) + 1, dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise RecordingError(f"it cannot be read; {_NO_FORMAT}") from error
    _check_length(len(samples) / rate_hz)
    return samples.mean(axis=1, dtype=np.float64), rate_hz


def _decode_mp3(content: bytes) -> tuple[NDArray[np.float64], int]:
    """Return mono samples ``[N]`` of an MP3 file and their rate.

    Raises:
        RecordingError: As `_decode`.
    """
    try:
        samples, rate_hz = read_mp3(content, MAX_S)
    except Mp3TooLong as error:
        raise RecordingError(_TOO_LONG) from error
    except Mp3Error as error:
        raise RecordingError(f"it cannot be read; {_NO_FORMAT}") from error
    _check_header(samples.shape[1], rate_hz)
    _check_length(len(samples) / rate_hz)
    return samples.mean(axis=1, dtype=np.float64), rate_hz


def _looks_known(content: bytes) -> bool:
    """Return whether a file begins as WAV, FLAC or OGG, before libsndfile's decoders see it."""
    wav = content[:4] == b"RIFF" and content[8:12] == b"WAVE"
    return wav or content[:4] in {b"fLaC", b"OggS"}


def _check_format(file: soundfile.SoundFile) -> None:
    """Refuse formats and encodings that are not accepted.

    Raises:
        RecordingError: It is one of them.
    """
    if file.subtype not in _FORMATS.get(file.format, ()):
        raise RecordingError(f"{file.format} with {file.subtype} is not supported; {_NO_FORMAT}")


def _check_header(channels: int, rate_hz: int) -> None:
    """Refuse channels and rates out of bounds before any audio is decoded.

    Raises:
        RecordingError: One is out of bounds.
    """
    if channels > _MAX_CHANNELS:
        raise RecordingError(f"it has {channels} channels; at most {_MAX_CHANNELS} are accepted")
    if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        raise RecordingError(
            f"its rate is {rate_hz} Hz; {MIN_RATE_HZ:,} to {MAX_RATE_HZ:,} Hz are accepted"
        )


def _check_length(audio_s: float, what: str = "") -> None:
    """Refuse audio that is too short or too long.

    Raises:
        RecordingError: It is.
    """
    if audio_s > MAX_S:
        raise RecordingError(_TOO_LONG)
    if audio_s < MIN_S:
        raise RecordingError(f"it has {audio_s:.2f} s{what}; at least {MIN_S:g} s is needed")


def _check_clipping(samples: NDArray[np.float64]) -> None:
    """Refuse clipped audio: peaks that are flat, with equal consecutive samples.

    Raises:
        RecordingError: Too many samples are.
    """
    height = np.abs(samples)
    top = height[1:] >= 0.98 * height.max()
    flat = np.diff(samples) == 0
    share = float((top & flat).mean())
    if share > _CLIPPED_SHARE:
        raise RecordingError(
            f"it is clipped ({share:.1%} of its samples); record it at a lower level"
        )


def _trim(samples: NDArray[np.float64], rate_hz: int) -> NDArray[np.float64]:
    """Trim silence at both ends, leaving a short rest.

    Raises:
        RecordingError: The audio is silent.
    """
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
    """Normalise loudness to `LEVEL_LUFS`, or as close as the peaks allow.

    Raises:
        RecordingError: The audio is silent.
    """
    # Measured at full scale: the absolute gate of ITU-R BS.1770 would drop quiet speech.
    samples = samples / np.abs(samples).max()
    lufs = loudness_lufs(samples, rate_hz)
    if not np.isfinite(lufs):
        raise RecordingError("it is silent but for some clicks")
    return samples * min(10 ** ((LEVEL_LUFS - lufs) / 20), _PEAK)
