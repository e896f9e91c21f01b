"""What is sent as a recording becomes a voice, or is refused with a reason and little work."""

import io
import re
import tracemalloc
from contextlib import suppress
from typing import Any

import av
import numpy as np
import pyloudnorm
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from models.voices.recording import LEVEL_LUFS, Recording, RecordingError, read_recording
from tests.speech_like import packed, silent_file, speech_like

FORMATS = [
    ("WAV", "PCM_U8"),
    ("WAV", "PCM_16"),
    ("WAV", "FLOAT"),
    ("WAVEX", "PCM_24"),
    ("FLAC", "PCM_16"),
    ("MP3", "MPEG_LAYER_III"),
    ("OGG", "VORBIS"),
    ("OGG", "OPUS"),
]
FILES = {form: packed(speech_like(1.5), *(24_000, *form)) for form in FORMATS}
BOMB_MINUTES = 20


def container(form: str, codec: str, samples: np.ndarray, rate_hz: int = 24_000) -> bytes:
    """Return a file as libav writes it."""
    file = io.BytesIO()
    with av.open(file, "w", format=form) as out:
        stream: Any = out.add_stream(codec, rate=rate_hz, layout="mono")
        if codec.startswith("wma"):
            stream.bit_rate = 64_000  # it has no default
        pcm = (samples * 32_767).astype(np.int16)[None]
        frame = av.AudioFrame.from_ndarray(pcm, format="s16", layout="mono")
        frame.sample_rate = rate_hz
        resampler = av.AudioResampler(stream.format, "mono", rate_hz, stream.frame_size or None)
        for one in [*resampler.resample(frame), *resampler.resample(None)]:
            out.mux(stream.encode(one))
        out.mux(stream.encode(None))
    return file.getvalue()


def lufs(recording: Recording) -> float:
    return float(pyloudnorm.Meter(recording.rate_hz).integrated_loudness(recording.samples))


@pytest.mark.parametrize("form", FORMATS, ids="-".join)
def test_every_format_gives_the_same_speech(form) -> None:
    recording = read_recording(FILES[form])
    assert recording.rate_hz in {24_000, 48_000}  # Opus knows no other than the latter
    assert recording.audio_s == pytest.approx(1.5, abs=0.06)
    samples = recording.samples[:: recording.rate_hz // 24_000]
    reference = read_recording(FILES["WAV", "FLOAT"]).samples
    length = min(len(samples), len(reference))
    # Syllables stand where they stood: lossy formats keep the ups and downs.
    window = 480
    ups = [
        np.sqrt((part[: length // window * window].reshape(-1, window) ** 2).mean(1))
        for part in (samples, reference)
    ]
    assert np.corrcoef(*ups)[0, 1] > 0.9


def test_a_kept_recording_reads_as_itself() -> None:
    recording = read_recording(packed(speech_like(2.0)))
    samples, rate_hz = soundfile.read(io.BytesIO(recording.flac()), dtype="float32")
    assert rate_hz == recording.rate_hz
    assert np.abs(samples - recording.samples).max() <= 1 / 32_768


@pytest.mark.parametrize("level", [0.003, 0.02, 0.3])
def test_loud_and_quiet_recordings_are_kept_at_one_level(level) -> None:
    recording = read_recording(packed(speech_like(2.0, level=level), subtype="FLOAT"))
    assert lufs(recording) == pytest.approx(LEVEL_LUFS, abs=0.1)
    assert np.abs(recording.samples).max() <= 0.98


def test_peaks_are_not_clipped_to_reach_the_level() -> None:
    samples = speech_like(2.0, level=0.001)
    samples[::6_000] = 0.9
    recording = read_recording(packed(samples))
    assert np.abs(recording.samples).max() == pytest.approx(0.98, abs=1e-3)
    assert lufs(recording) < LEVEL_LUFS - 1


CHANNELS = {
    "three alike": (1.0, 1.0, 1.0),
    "eight alike": (1.0,) * 8,
    "opposite": (1.0, -1.0),
    "opposite, and not as loud": (1.0, -0.8),
    "the left alone": (1.0, 0.0),
    "the right alone": (0.0, 1.0),
    "the third of five": (0.0, 0.0, 1.0, 0.0, 0.0),
    "two of four opposite": (1.0, -1.0, 0.0, 0.0),
    "four by turns": (1.0, -1.0, 1.0, -1.0),
}


@pytest.mark.parametrize("gains", CHANNELS.values(), ids=CHANNELS)
def test_the_speech_of_some_channels_is_that_of_one(gains) -> None:
    speech = speech_like(1.5)
    mixed = read_recording(packed(np.outer(speech, gains), subtype="FLOAT"))
    mono = read_recording(packed(speech, subtype="FLOAT"))
    np.testing.assert_allclose(mixed.samples, mono.samples, atol=1e-4)
    assert mixed.warnings == mono.warnings


def offset(kind: str) -> np.ndarray:
    speech = speech_like(3.0, level=0.05)
    at_s = np.arange(len(speech)) / 24_000
    return (
        speech
        + {
            "up": 0.3 + 0 * at_s,
            "down": -0.6 + 0 * at_s,
            "dying away": 0.4 * np.exp(-at_s / 0.5),
            "wandering": 0.2 * np.sin(2 * np.pi * 0.7 * at_s),
        }[kind]
    )


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("kind", ["up", "down", "dying away", "wandering"])
def test_an_offset_is_taken_off_before_all_else(kind, channels) -> None:
    found = read_recording(packed(np.stack([offset(kind)] * channels, axis=1)))
    clean = read_recording(packed(speech_like(3.0, level=0.05)))
    assert abs(float(found.samples.mean())) < 1e-3
    assert found.warnings == clean.warnings
    assert lufs(found) == pytest.approx(lufs(clean), abs=0.2)


CUT: dict[str, tuple[bytes, str]] = {
    "wav": (packed(speech_like(8.0)), "2.7 of 8.0 s"),
    "wav of floats": (packed(speech_like(8.0), subtype="FLOAT"), "2.7 of 8.0 s"),
    "rf64": (packed(speech_like(8.0), format="RF64"), "2.7 of 8.0 s"),
    "w64": (packed(speech_like(8.0), format="W64"), "2.7 of 8.0 s"),
    "aiff": (packed(speech_like(8.0), format="AIFF"), "2.7 of 8.0 s"),
    "au": (packed(speech_like(8.0), format="AU"), "2.7 of 8.0 s"),
    "caf": (packed(speech_like(8.0), format="CAF"), "2.. of 8.0 s"),
    "adpcm": (packed(speech_like(8.0), subtype="MS_ADPCM"), "2.. of 8.. s"),
    "flac": (packed(speech_like(8.0), format="FLAC"), "2.. of 8.0 s"),
    "mp3": (container("mp3", "libmp3lame", speech_like(8.0)), "2.. of 8.. s"),
    "webm": (container("webm", "libopus", speech_like(8.0, 48_000), 48_000), "2.. of 8.. s"),
    "wma": (container("asf", "wmav2", speech_like(8.0, 44_100), 44_100), "2.. of [78].. s"),
    "ogg": (packed(speech_like(8.0), format="OGG", subtype="VORBIS"), "ends after [23].. s"),
    "opus": (packed(speech_like(8.0), format="OGG", subtype="OPUS"), "ends after [23].. s"),
}


@pytest.mark.parametrize(("whole", "said"), CUT.values(), ids=CUT)
def test_a_file_that_was_cut_off_is_told_with_what_is_left(whole, said) -> None:
    (told,) = [one for one in read_recording(whole[: len(whole) // 3]).warnings if "cut" in one]
    assert re.search(f"the file is cut: .*{said}", told)
    assert not [one for one in read_recording(whole).warnings if "cut" in one]


@pytest.mark.parametrize("said", [0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_a_length_that_the_writer_did_not_know_is_no_cut(said) -> None:
    content = bytearray(FILES["WAV", "PCM_16"])
    content[4:8] = content[40:44] = said.to_bytes(4, "little")
    recording = read_recording(bytes(content))
    whole = read_recording(FILES["WAV", "PCM_16"])
    assert (recording.warnings, recording.audio_s) == (whole.warnings, whole.audio_s)


def tag(size: int) -> bytes:
    return b"ID3\4\0\0" + bytes(size >> shift & 127 for shift in (21, 14, 7, 0)) + bytes(size)


@pytest.mark.parametrize("form", FORMATS, ids="-".join)
@pytest.mark.parametrize("tags", [tag(0), tag(5000), tag(300) + tag(20)], ids=len)
def test_tags_before_any_format_are_skipped(tags, form) -> None:
    assert read_recording(tags + FILES[form]).audio_s == pytest.approx(1.5, abs=0.06)


@pytest.mark.parametrize(
    ("level", "bits"), [(1.0, 16), (0.126, 16), (0.01, 16), (0.01, 24), (0.5, 8)]
)
@pytest.mark.parametrize("pitch_hz", [60.0, 220.0, 1000.0])
def test_a_sine_is_not_clipped_however_quiet(level, bits, pitch_hz) -> None:
    samples = 0.99 * level * np.sin(2 * np.pi * pitch_hz * np.arange(48_000) / 24_000)
    subtype = "PCM_U8" if bits == 8 else f"PCM_{bits}"
    assert read_recording(packed(samples, subtype=subtype)).audio_s == pytest.approx(2.0, abs=0.02)


@pytest.mark.parametrize("gain", [1.0, 0.3, 0.05])
@pytest.mark.parametrize("sides", [(-0.9, 0.9), (-0.97, 0.3), (-0.2, 0.97)])
def test_what_was_clipped_is_refused_however_quiet_it_was_made(sides, gain) -> None:
    samples = np.clip(speech_like(2.0, level=1.0), *sides) * gain
    with pytest.raises(RecordingError, match="clipped"):
        read_recording(packed(samples))


def test_channels_are_averaged() -> None:
    left, right = speech_like(1.5, seed=1), speech_like(1.5, seed=2)
    stereo = read_recording(packed(np.stack([left, right], axis=1), subtype="FLOAT"))
    mono = read_recording(packed((left + right) / 2, subtype="FLOAT"))
    np.testing.assert_allclose(stereo.samples, mono.samples, atol=1e-6)


@pytest.mark.parametrize(
    ("rate_hz", "kept_hz"), [(8_000, 8_000), (44_100, 44_100), (96_000, 48_000), (192_000, 48_000)]
)
def test_rates_of_speech_are_kept_and_higher_ones_lowered(rate_hz, kept_hz) -> None:
    recording = read_recording(packed(speech_like(1.5, rate_hz), rate_hz))
    assert recording.rate_hz == kept_hz
    assert recording.audio_s == pytest.approx(1.5, abs=0.02)


def test_silence_around_the_speech_is_cut_off() -> None:
    silence = np.zeros(48_000)
    padded = np.concatenate([silence, speech_like(2.0), silence])
    assert read_recording(packed(padded)).audio_s == pytest.approx(2.15, abs=0.02)


def clipped() -> np.ndarray:
    return np.clip(speech_like(2.0, level=2.0), -0.9, 0.9)


def with_nan() -> np.ndarray:
    samples = speech_like(2.0)
    samples[500] = np.nan
    return samples


def clicks() -> np.ndarray:
    """Return silence that begins with a faint and ends with a loud click."""
    samples = np.zeros(25_100)
    samples[:240:2] = 5e-4
    samples[24_900] = 0.9
    return samples


REFUSED = {
    "empty": (b"", "WAV, FLAC, MP3 or OGG"),
    "text": (b"not audio at all, but quite a lot of text", "WAV, FLAC, MP3 or OGG"),
    "a playlist": (b"#EXTM3U\n#EXTINF:9,\nhttp://127.0.0.1:9/a.ts\n", "WAV, FLAC, MP3 or OGG"),
    "a list of files": (b"ffconcat version 1.0\nfile '/etc/hosts'\n", "WAV, FLAC, MP3 or OGG"),
    "a session": (b"v=0\nc=IN IP4 127.0.0.1\nm=audio 9 RTP/AVP 0\n", "WAV, FLAC, MP3 or OGG"),
    "MPEG that is none": (b"\xff\xfb" + b"\0" * 5000, "cannot be read"),
    "cut off": (FILES["FLAC", "PCM_16"][:60], "cannot be read|at least 1 s"),
    "a codec of games": (
        packed(speech_like(), subtype="IMA_ADPCM").replace(b"\x11\0\1\0\xc0", b"\x61\0\1\0\xc0", 1),
        "WAV with adpcm_ima_dk4 is not supported",
    ),
    "a codec that does not exist": (
        packed(speech_like()).replace(b"fmt \x10\0\0\0\1\0", b"fmt \x10\0\0\0\x34\x12"),
        "an unknown codec is not",
    ),
    "too short": (packed(speech_like(0.9)), "0.90 s; at least 1 s"),
    "mostly silent": (
        packed(np.concatenate([np.zeros(24_000), speech_like(0.5)])),
        "without the silence around it; at least 1 s",
    ),
    "silent": (packed(np.zeros(48_000)), "silent"),
    "nearly silent": (packed(speech_like(2.0, level=3e-5)), "silent"),
    "too quiet": (packed(speech_like(2.0, level=1e-3)), "too quiet: .* -6. dBFS, at least -60 is"),
    "too quiet in 24 bits": (
        packed(speech_like(2.0, level=3e-4), 24_000, "WAV", "PCM_24"),
        "too quiet",
    ),
    "clicks": (packed(clicks(), subtype="FLOAT"), "but for some clicks"),
    "a constant": (packed(np.full(48_000, 0.3)), "silent"),
    "clipped": (packed(clipped()), "clipped"),
    "no numbers": (packed(with_nan(), subtype="FLOAT"), "NaN or infinite"),
    "infinite": (packed(speech_like() * np.inf, subtype="FLOAT"), "NaN or infinite"),
    "nine channels": (packed(np.stack([speech_like()] * 9, axis=1)), "9 channels; at most 8"),
    "a phone's file that was cut": (
        container("ipod", "aac", speech_like())[:9000],
        "the file is cut: its index, which is at its end, is missing",
    ),
    "cut to less than a second": (
        packed(speech_like(8.0))[:30_000],
        "the file is cut: 0.6 of 8.0 s",
    ),
    "a low rate": (packed(speech_like(2.0, 4_000), 4_000), "4000 Hz"),
    "a high rate": (packed(speech_like(1.1, 384_000), 384_000), "384000 Hz"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_a_voice_is_refused_with_a_reason(case) -> None:
    content, reason = REFUSED[case]
    with pytest.raises(RecordingError, match=reason):
        read_recording(content)


def peak_bytes(content: bytes) -> int:
    """Return the most memory that refusing a file took."""
    tracemalloc.start()
    try:
        with pytest.raises(RecordingError, match="silent"):
            read_recording(content)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["FLAC", "OGG", "MP3"])
def test_long_silence_in_a_small_file_is_refused_without_unpacking_it(form) -> None:
    bomb = silent_file(60 * BOMB_MINUTES, form, rate_hz=8_000)
    assert len(bomb) < 2_000_000
    assert peak_bytes(bomb) < 12_000_000  # 30 s, not 20 minutes


@pytest.mark.parametrize(
    ("form", "codec", "rate_hz"),
    [
        ("ipod", "aac", 44_100),  # a phone's M4A
        ("mp4", "aac", 24_000),
        ("adts", "aac", 24_000),
        ("webm", "libopus", 48_000),  # a browser's MediaRecorder
        ("aiff", "pcm_s16be", 24_000),
        ("caf", "pcm_s16be", 24_000),
        ("w64", "pcm_s16le", 24_000),
        ("au", "pcm_s16be", 24_000),
        ("au", "pcm_mulaw", 8_000),
        ("asf", "wmav1", 44_100),
        ("asf", "wmav2", 44_100),
        ("wav", "adpcm_ms", 24_000),
        ("wav", "adpcm_ima_wav", 24_000),
        ("wav", "adpcm_yamaha", 24_000),
        ("wav", "g722", 16_000),
        ("mov", "adpcm_ima_qt", 24_000),
        ("mov", "pcm_s16le", 24_000),
        ("mp4", "alac", 24_000),
        ("mpegts", "aac", 24_000),
        ("mpegts", "mp2", 48_000),
        ("mpegts", "libmp3lame", 24_000),
        ("mp2", "mp2", 48_000),
        ("amr", "libopencore_amrnb", 8_000),
    ],
)
def test_what_phones_and_browsers_record_is_read(form, codec, rate_hz) -> None:
    content = container(form, codec, speech_like(2.0, rate_hz), rate_hz)
    recording = read_recording(content)
    assert recording.rate_hz == rate_hz
    assert recording.audio_s == pytest.approx(2.0, abs=0.15)


def test_of_a_long_file_the_part_with_speech_is_taken_or_what_is_asked_for() -> None:
    rate_hz = 16_000
    hum = np.random.default_rng(3).normal(0, 3e-4, 70 * rate_hz)
    speech = speech_like(14.0, rate_hz, seed=4)
    hum[40 * rate_hz :][: len(speech)] += speech
    hum[3 * rate_hz :][: rate_hz // 2] += speech_like(0.5, rate_hz, level=0.05)
    content = packed(hum, rate_hz)
    best = read_recording(content)
    begin, end = (np.abs(best.samples[at * rate_hz :][: 3 * rate_hz]).mean() for at in (0, 20))
    assert begin > 10 * end
    asked = read_recording(content, start_s=45.0)
    assert asked.audio_s == pytest.approx(25.0, abs=0.3)
    with pytest.raises(RecordingError, match="ends before 80 s"):
        read_recording(content, start_s=80.0)


@pytest.mark.slow
@pytest.mark.parametrize("said", [0, 24_000, 1 << 35])
def test_a_flac_that_lies_about_its_length_unpacks_to_no_more_than_may_be(said) -> None:
    bomb = bytearray(silent_file(600, "FLAC"))
    # STREAMINFO: the low 36 bits of the 8 bytes from 18 on are the number of samples.
    word = int.from_bytes(bomb[18:26], "big") >> 36 << 36
    bomb[18:26] = (word | said).to_bytes(8, "big")
    tracemalloc.start()
    try:
        with pytest.raises(RecordingError):
            read_recording(bytes(bomb))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@given(
    form=st.sampled_from(FORMATS),
    changes=st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 255)), max_size=12),
    length=st.integers(0, 80_000),
)
@settings(max_examples=100, deadline=None)
def test_a_damaged_file_is_a_recording_or_refused(form, changes, length) -> None:
    content = bytearray(FILES[form][:length])
    for place, value in changes:
        if place < len(content):
            content[place] = value
    try:
        recording = read_recording(bytes(content))
    except RecordingError:
        return
    assert np.isfinite(recording.samples).all()
    assert np.abs(recording.samples).max() <= 1
    assert 1 <= recording.audio_s <= 30


def test_a_damaged_mp3_writes_nothing_to_the_error_stream(capfd) -> None:
    """What libraries write there has no time, no request and no form: it is no log."""
    content = bytearray(FILES["MP3", "MPEG_LAYER_III"])
    rng = np.random.default_rng(5)
    for _ in range(20):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), 20):
            damaged[place] = rng.integers(256)
        with suppress(RecordingError):
            read_recording(bytes(damaged))
    assert capfd.readouterr().err == ""
