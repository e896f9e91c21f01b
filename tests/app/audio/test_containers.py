"""Every format holds the whole sound, in one file, whole or in pieces.

That those without loss hold the very samples is said by `test_formats`, of files without sound by
`test_empty`.
"""

from io import BytesIO
from typing import get_args

import av
import numpy as np
import pytest
import soundfile

from app.audio.containers import encode_file, open_container
from app.audio.formats import MEDIA_TYPES, AudioFormat
from tests.app.tools.decoding import decoded

RATE_HZ = 24_000
FORMATS = get_args(AudioFormat)
EXACT = ["wav", "pcm", "flac"]
HEADS = {"wav": b"RIFF", "flac": b"fLaC", "opus": b"OggS"}
LAME_GAIN = 0.95  # it turns all that it is given down, by 0.45 dB
LONGEST_S = 0.1  # of what MP3 and AAC may add when they cannot say where the sound ends


def tone(samples: int) -> np.ndarray:
    """A voice-like sound that is loud to its last sample."""
    t = np.arange(samples) / RATE_HZ
    partials = sum(np.sin(2 * np.pi * 140 * k * t * (1 + 0.1 * t)) / k for k in range(1, 12))
    return (0.2 * partials * (1 + 0.3 * np.sin(9 * t))).astype(np.float32)


def streamed(samples: np.ndarray, form: AudioFormat, chunk: int) -> bytes:
    file = open_container(form, RATE_HZ)
    parts = [file.push(samples[n : n + chunk]) for n in range(0, len(samples), chunk)]
    return b"".join([*parts, file.close()])


def heard(sound: bytes, form: AudioFormat) -> tuple[np.ndarray, int]:
    return decoded(sound, RATE_HZ if form in {"pcm", "ulaw", "alaw"} else None, form)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("samples", [2400, 24_000, 50_001])
def test_a_decoder_gives_as_many_samples_as_went_in(form, whole, samples):
    sound = tone(samples)
    file = encode_file(sound, form, RATE_HZ) if whole else streamed(sound, form, 4800)
    read, rate_hz = heard(file, form)
    more_s = len(read) / rate_hz - samples / RATE_HZ
    if form == "aac" or (form == "mp3" and not whole):
        assert 0 <= more_s <= LONGEST_S
    else:
        assert abs(more_s) <= 1 / RATE_HZ


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("form", ["mp3", "opus", "aac"])
def test_the_last_word_is_there_and_where_it_was(form, whole):
    sound = np.zeros(36_000, np.float32)
    sound[-4800:] = tone(4800)  # 0.2 s, up to the very end
    file = encode_file(sound, form, RATE_HZ) if whole else streamed(sound, form, 4800)
    read, rate_hz = heard(file, form)
    loud = np.flatnonzero(np.abs(read) > 0.1) / rate_hz
    gapless = form == "opus" or (form == "mp3" and whole)
    late_s = 0.002 if gapless else LONGEST_S
    assert -0.005 <= loud[0] - 31_200 / RATE_HZ <= late_s + 0.005
    assert -0.005 <= loud[-1] - 36_000 / RATE_HZ <= late_s
    energy = np.square(read).sum() / rate_hz
    given = np.square(sound * (LAME_GAIN if form == "mp3" else 1)).sum() / RATE_HZ
    assert energy == pytest.approx(given, rel=0.05)


@pytest.mark.parametrize("form", FORMATS)
def test_the_bytes_depend_on_the_sound_and_not_on_its_pieces(form):
    sound = tone(20_000)
    assert streamed(sound, form, 4800) == streamed(sound, form, 700)
    assert encode_file(sound, form, RATE_HZ) == encode_file(sound, form, RATE_HZ)


@pytest.mark.parametrize("form", HEADS)
def test_pieces_make_one_file(form):
    file = streamed(tone(48_000), form, 4800)
    assert file.startswith(HEADS[form])
    heads = b"OpusHead" if form == "opus" else HEADS[form]
    assert file.count(heads) == 1


def test_a_streamed_mp3_has_no_frame_that_tells_a_length():
    sound = tone(24_000)
    assert b"Info" in encode_file(sound, "mp3", RATE_HZ)[:64]
    file = streamed(sound, "mp3", 4800)
    assert not {b"Info", b"Xing", b"ID3"} & {file[n : n + k] for n in range(64) for k in (3, 4)}


def test_a_whole_flac_tells_its_length_and_checksum():
    info = soundfile.info(BytesIO(encode_file(tone(50_001), "flac", RATE_HZ)))
    assert (info.frames, info.samplerate, info.subtype) == (50_001, RATE_HZ, "PCM_16")


def test_a_whole_wav_tells_its_lengths():
    file = encode_file(tone(50_001), "wav", RATE_HZ)
    told = [int.from_bytes(file[place : place + 4], "little") for place in (4, 40)]
    assert told == [len(file) - 8, 2 * 50_001]


@pytest.mark.parametrize("form", FORMATS)
def test_most_of_a_sound_is_sent_before_the_next_comes(form):
    file = open_container(form, RATE_HZ)
    sent = len(file.push(tone(4800)))
    assert sent
    for _ in range(10):
        sent += len(file.push(tone(4800)))
    assert sent > 0.85 * (sent + len(file.close()))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("samples", [1, 100])
def test_the_shortest_of_sounds_is_whole(form, samples):
    for file in (encode_file(tone(samples), form, RATE_HZ), streamed(tone(samples), form, 50)):
        least = 1 if form == "mp3" else samples  # of one sample it keeps a part of its padding
        assert len(heard(file, form)[0]) >= least


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_too_loud_is_clipped_and_does_not_wrap_around(form):
    loud = np.clip(tone(24_000) * 20, -3, 3)
    read, _ = heard(encode_file(loud, form, RATE_HZ), form)
    together = min(len(read), 12_000)
    assert np.abs(read[:together]).max() > 0.9
    if form in EXACT:
        np.testing.assert_allclose(read, np.clip(loud, -1, 1), atol=1e-4)


def test_every_format_has_a_media_type():
    assert set(MEDIA_TYPES) == set(FORMATS)
    assert MEDIA_TYPES["mp3"] == "audio/mpeg"


def test_opus_is_said_to_be_of_our_rate_and_played_at_48_khz():
    with av.open(BytesIO(encode_file(tone(24_000), "opus", RATE_HZ))) as file:
        assert file.streams.audio[0].rate == 48_000
        assert file.format.name == "ogg"
