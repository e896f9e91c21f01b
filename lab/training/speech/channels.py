"""What lies between a mouth and an uploaded file: a room, a microphone, noise, a codec.

People record themselves with telephones in kitchens; teachers speak in no room at all. A model that
is to imitate from a recording must be prompted with recordings while it is trained, so `Channel`
makes one of clean speech: an impulse response of a room, coloured noise, the tilt of a microphone,
the band that is left, clipping, and a codec of telephony or of messages, by libav.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, cast

import av
import numpy as np
import soxr
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from lab.training.speech.corpus import SAMPLE_RATE_HZ

Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Codec:
    """A codec of libav: its encoder, its decoder, the rate it takes and its bits a second."""

    encoder: str
    decoder: str
    rate_hz: int
    bit_rates: tuple[int, ...]


CODECS: Final = (
    Codec("pcm_mulaw", "pcm_mulaw", 8_000, (64_000,)),
    Codec("pcm_alaw", "pcm_alaw", 8_000, (64_000,)),
    Codec("libopencore_amrnb", "amrnb", 8_000, (7_950, 12_200)),
    Codec("g722", "g722", 16_000, (64_000,)),
    Codec("libopus", "libopus", 48_000, (8_000, 12_000, 16_000, 24_000, 32_000)),
    Codec("libmp3lame", "mp3float", 24_000, (24_000, 32_000, 48_000, 64_000)),
    Codec("libmp3lame", "mp3float", 16_000, (16_000, 24_000, 32_000)),
)

BANDS_HZ: Final = (3_400.0, 12_000.0)
LOWEST_HZ: Final = (20.0, 300.0)
DECAYS_S: Final = (0.1, 0.8)  # until the room's answer has fallen by 60 dB
REVERBERANT_DB: Final = (-20.0, 2.0)  # the room's answer beside what comes straight
NOISES_DB: Final = (5.0, 35.0)  # of the signal over the noise
COLOURS: Final = (0.0, 2.0)  # noise of a power of 1 / frequency ** colour
TILT_DB: Final = 6.0  # of a microphone, at most, at any of `TILT_POINTS` frequencies
TILT_POINTS: Final = 6
CLIPPED_AT: Final = (0.4, 0.9)  # of the largest sample
_EDGE: Final = 0.06  # of a band's upper end, over which it falls to nothing


@dataclass(frozen=True)
class Channel:
    """What happens to speech on its way into a file; None where something does not happen."""

    decay_s: float | None = None
    reverberant_db: float = 0.0
    noise_db: float | None = None
    colour: float = 0.0
    tilt_db: tuple[float, ...] = ()
    band_hz: tuple[float, float] | None = None
    clipped_at: float | None = None
    codec: Codec | None = None
    bit_rate: int = 0


def draw_channel(random: np.random.Generator) -> Channel:
    """Return a random channel; more than one thing happens in most, all of them in few."""

    def within(bounds: tuple[float, float]) -> float:
        return float(random.uniform(*bounds))

    codec = CODECS[int(random.integers(len(CODECS)))] if random.random() < 0.5 else None
    band = None
    if random.random() < 0.6:
        top = float(np.exp(within((np.log(BANDS_HZ[0]), np.log(BANDS_HZ[1])))))
        band = within(LOWEST_HZ), top
    return Channel(
        decay_s=within(DECAYS_S) if random.random() < 0.5 else None,
        reverberant_db=within(REVERBERANT_DB),
        noise_db=within(NOISES_DB) if random.random() < 0.5 else None,
        colour=within(COLOURS),
        tilt_db=tuple(random.uniform(-TILT_DB, TILT_DB, TILT_POINTS).tolist())
        if random.random() < 0.6
        else (),
        band_hz=band,
        clipped_at=within(CLIPPED_AT) if random.random() < 0.08 else None,
        codec=codec,
        bit_rate=int(random.choice(codec.bit_rates)) if codec else 0,
    )


def passed(samples: Samples, channel: Channel, random: np.random.Generator) -> Samples:
    """Return speech ``[N]``, not silent, of `SAMPLE_RATE_HZ` as it comes out of a channel."""
    sound = samples
    if channel.decay_s is not None:
        room = impulse_response(channel.decay_s, channel.reverberant_db, random)
        sound = fftconvolve(sound, room)[: len(samples)].astype(np.float32)
    if channel.noise_db is not None:
        noise = coloured_noise(len(sound), channel.colour, random)
        sound = sound + noise * np.float32(_rms(sound) * 10 ** (-channel.noise_db / 20))
    if channel.tilt_db or channel.band_hz:
        sound = _filtered(sound, channel)
    if channel.clipped_at is not None:
        limit = np.float32(np.abs(sound).max() * channel.clipped_at)
        sound = np.clip(sound, -limit, limit)
    peak = np.float32(np.abs(sound).max())
    sound = sound * (np.float32(0.9) / peak)
    if channel.codec is not None:
        sound = coded(sound, channel.codec, channel.bit_rate)
    return _of_length(sound, len(samples))


def impulse_response(
    decay_s: float, reverberant_db: float, random: np.random.Generator
) -> NDArray[np.float32]:
    """Return the answer of a room ``[N]`` to a click: itself, then noise that dies away.

    It has fallen by 60 dB after ``decay_s`` (RT60); its noise has ``reverberant_db`` over the
    click's energy.
    """
    count = round(decay_s * SAMPLE_RATE_HZ)
    times = np.arange(count) / SAMPLE_RATE_HZ
    tail = random.standard_normal(count) * 10 ** (-3 * times / decay_s)
    tail[: int(random.integers(24, 240))] = 0  # 1 to 10 ms until the first wall answers
    tail *= 10 ** (reverberant_db / 20) / max(1e-9, float(np.sqrt((tail**2).sum())))
    tail[0] = 1.0
    return tail.astype(np.float32)


def coloured_noise(count: int, colour: float, random: np.random.Generator) -> NDArray[np.float32]:
    """Return noise ``[count]`` of unit RMS whose power falls as ``1 / frequency ** colour``."""
    spectrum = np.fft.rfft(random.standard_normal(count))
    frequencies = np.maximum(np.arange(len(spectrum)) * SAMPLE_RATE_HZ / count, 50.0)
    noise = np.fft.irfft(spectrum * frequencies ** (-colour / 2), count)
    return (noise / np.sqrt((noise**2).mean())).astype(np.float32)


def coded(samples: Samples, codec: Codec, bit_rate: int) -> Samples:
    """Return speech ``[N]`` in [-1, 1] as a codec renders it; a few ms more or less."""
    rate_hz = codec.rate_hz
    encoder = cast("av.AudioCodecContext", av.CodecContext.create(codec.encoder, "w"))
    decoder = cast("av.AudioCodecContext", av.CodecContext.create(codec.decoder, "r"))
    encoder.format = "s16p" if codec.encoder == "libmp3lame" else "s16"
    encoder.bit_rate, encoder.time_base = bit_rate, Fraction(1, rate_hz)
    for context in (encoder, decoder):
        context.layout, context.sample_rate = "mono", rate_hz
    encoder.open()
    if encoder.extradata:
        decoder.extradata = encoder.extradata
    at_rate = np.clip(soxr.resample(samples, SAMPLE_RATE_HZ, rate_hz), -1, 1)
    whole = av.AudioFrame.from_ndarray(
        (at_rate * 32767).astype(np.int16)[None], encoder.format.name, "mono"
    )
    whole.sample_rate, whole.pts, whole.time_base = rate_hz, 0, encoder.time_base
    fifo = av.AudioFifo()
    fifo.write(whole)
    portions = fifo.read_many(encoder.frame_size or rate_hz // 50, partial=True)
    heard = [
        _float(frame)
        for portion in [*portions, None]
        for packet in encoder.encode(portion)
        for frame in decoder.decode(packet)
    ]
    heard += [_float(frame) for frame in decoder.decode(None)]
    return np.asarray(soxr.resample(np.concatenate(heard), rate_hz, SAMPLE_RATE_HZ), np.float32)


def _float(frame: av.AudioFrame) -> Samples:
    """Return the samples ``[N]`` of a mono frame in [-1, 1]."""
    samples = frame.to_ndarray().ravel()
    if samples.dtype == np.int16:
        return np.asarray(samples / 32768, np.float32)
    return np.asarray(samples, np.float32)


def _filtered(sound: Samples, channel: Channel) -> Samples:
    """Return ``sound`` ``[N]`` through the microphone's tilt and the band that is left."""
    spectrum = np.fft.rfft(sound)
    frequencies = np.arange(len(spectrum)) * SAMPLE_RATE_HZ / len(sound)
    gain = np.ones(len(spectrum))
    if channel.tilt_db:
        points = np.geomspace(100, SAMPLE_RATE_HZ / 2, len(channel.tilt_db))
        gain *= 10 ** (np.interp(frequencies, points, channel.tilt_db) / 20)
    if channel.band_hz:
        low, high = channel.band_hz
        gain *= np.clip((high - frequencies) / (_EDGE * high) + 0.5, 0, 1)
        gain *= 1 / np.sqrt(1 + (low / np.maximum(frequencies, 1e-3)) ** 4)
    return np.fft.irfft(spectrum * gain, len(sound)).astype(np.float32)


def _rms(sound: Samples) -> float:
    return float(np.sqrt((sound.astype(np.float64) ** 2).mean()))


def _of_length(sound: Samples, count: int) -> Samples:
    """Return ``sound`` ``[count]``, its end cut off or filled with silence."""
    return np.pad(sound[:count], (0, max(0, count - len(sound))))
