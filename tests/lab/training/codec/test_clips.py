"""People are heard by person, within one recording and with its codes; teachers anywhere."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lab.training import cache as cache_of_training
from lab.training.codec import encoded as encodings
from lab.training.codec.clips import CLEAN_DB, Clips
from lab.training.codec.encoded import encoded
from lab.training.codec.pitch import contour
from lab.training.codec.sound_losses import below
from lab.training.speech.corpus import SAMPLE_RATE_HZ, Corpus, write_shard
from models.checkpoints.builtin import save_codec
from models.codecs.spectral import SpectralCodec
from models.config import SpectralCodecConfig

CODEC = SpectralCodecConfig(
    width=16, ffn=24, dimension=8, codes=16, bands=20, encoder_layers=1, decoder_layers=1, gain=20
)
FRAMES = 12
SHAPE = FRAMES, CODEC.hop, CODEC.window


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """People: the first is kept out, the second has one recording, the third nine, one noisy."""
    pytest.importorskip("pyworld")
    monkeypatch.setattr(cache_of_training, "NEXT_MODEL", tmp_path / "next")
    encodings._codec.cache_clear()
    torch.manual_seed(0)
    codec = SpectralCodec(CODEC)
    codec.quantizer.codebooks.normal_()
    save_codec(tmp_path / "next", codec)
    random = np.random.default_rng(0)
    (tmp_path / "people").mkdir()
    for shard, people in enumerate(([("x", 60.0)], [("a", 60.0), *[("b", 60.0)] * 8, ("b", 9.0)])):
        write_shard(
            tmp_path / "people",
            shard,
            [
                (
                    random.normal(0, 0.05, SAMPLE_RATE_HZ // 2 + 100 * place).astype(np.float32),
                    {"text": "", "speaker": name, "part": "train" if shard else "speakers",
                     "snr_db": snr_db, "band_hz": 4000.0 if name == "a" else 12_000.0},
                )
                for place, (name, snr_db) in enumerate(people)
            ],
        )  # fmt: skip
    found = Corpus(tmp_path, "people")
    for number in found.shards:
        contour(found, number)
    return found


def test_each_person_is_heard_as_often_with_the_codes_and_the_band_of_the_recording(corpus):
    drawn = Clips([(corpus, 1.0)], *SHAPE).draw(400, np.random.default_rng(0))
    of_a = drawn.bands_hz == 4000
    assert 0.4 < of_a.float().mean() < 0.6
    entries = [one for one in corpus.utterances if one.shard == 1]
    codes = encoded(corpus, 1)
    sound = corpus.shard_samples(1).astype(np.float32) / 32768
    heard = set()
    for clip, known in zip(drawn.samples.numpy(), drawn.codes.numpy(), strict=True):
        first = [np.isclose(sound[at : len(sound) - 9 + at], clip[at]) for at in range(9)]
        start = int(np.flatnonzero(np.all(first, 0))[0])
        found = next(at for at, one in enumerate(entries) if one.start <= start < one.end)
        np.testing.assert_allclose(clip, sound[start : start + len(clip)], atol=1e-6)
        frame, off = divmod(start - entries[found].start, CODEC.hop)
        assert off == 0
        np.testing.assert_array_equal(known, codes[found][frame : frame + FRAMES])
        assert entries[found].snr_db >= CLEAN_DB
        heard.add(found)
    assert heard == set(range(9))


def test_who_is_kept_out_is_heard_where_that_is_asked_for_alone(corpus):
    one = corpus.utterances[0]
    drawn = Clips([(corpus, 1.0)], *SHAPE, held_out=True).draw(4, np.random.default_rng(0))
    np.testing.assert_array_equal(
        drawn.codes[0].numpy() >= 0, np.ones((FRAMES, CODEC.levels), bool)
    )
    assert one.part == "speakers"
    assert bool((drawn.bands_hz == 12_000).all())


def test_teachers_have_no_codes_of_their_own_and_are_as_loud_as_chance_says(corpus, tmp_path):
    (tmp_path / "kokoro").mkdir()
    write_shard(tmp_path / "kokoro", 0, [(np.full(SAMPLE_RATE_HZ, 0.1, np.float32), {"text": "x"})])
    for number in (1, 2):  # those kept out
        write_shard(tmp_path / "kokoro", number, [(np.ones(9, np.float32), {"text": "x"})])
    teacher = Corpus(tmp_path, "kokoro")
    alone = Clips([(teacher, 1.0)], *SHAPE).draw(3, np.random.default_rng(0))
    assert alone.codes.shape == (3, FRAMES, 0)
    mixed = Clips([(teacher, 0.5), (corpus, 0.5)], *SHAPE).draw(40, np.random.default_rng(0))
    untold = (mixed.codes < 0).all(2).all(1)
    assert 8 < int(untold.sum()) < 32
    levels = mixed.samples[untold].mean(1)
    assert levels.min() < 0.08 < 0.11 < levels.max()


def test_what_lies_above_a_recordings_band_is_not_compared_and_below_it_nothing_changes():
    seconds = torch.arange(4096) / SAMPLE_RATE_HZ
    low, high = (torch.sin(2 * torch.pi * hz * seconds) for hz in (1500, 9000))
    both = torch.stack([low + high, low + high])
    cut = below(both, torch.tensor([8000.0, 12_000.0]), SAMPLE_RATE_HZ)
    torch.testing.assert_close(cut[0, 200:-200], low[200:-200], atol=0.02, rtol=0)
    torch.testing.assert_close(cut[1], both[1], atol=1e-5, rtol=0)
    assert below(both, torch.tensor([12_000.0, 12_000.0]), SAMPLE_RATE_HZ) is both
