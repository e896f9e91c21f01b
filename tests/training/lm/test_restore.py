"""Sound of kept codes: it is what the codec decodes, and nothing takes it for true speech."""

from pathlib import Path

import numpy as np
import pytest

from models.checkpoints import save_codec
from tests.training.lm.test_train import random_codec
from tests.training.synthetic import write_corpus
from training import cache as cache_of_training
from training.codec.clips import Clips
from training.lm import codes, restore
from training.speech.corpus import Corpus


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache whose crowd is lost, but for its codes beside the codec."""
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path / "cache"))
    for module in (codes, cache_of_training):
        monkeypatch.setattr(module, "NEXT_MODEL", tmp_path / "next")
    save_codec(tmp_path / "next", random_codec(0))
    cache = tmp_path / "cache"
    write_corpus(cache / "crowd", shards=2)
    monkeypatch.setattr("sys.argv", ["codes", "--workers", "1"])
    codes.main()
    codes.keep(cache)
    for folder in ("crowd", "codes"):
        for path in sorted((cache / folder).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    return cache


def test_lost_sound_is_as_long_as_its_codes_and_marked(cache: Path) -> None:
    restore.main()
    corpus = Corpus(cache, "crowd")
    assert corpus.shards == [0, 1]
    assert corpus.restored_shards == {0, 1}
    coded = codes.read_shard(codes.shard_files(cache, "crowd")[0])
    lines = [one for one in corpus.utterances if one.shard == 0]
    assert [one.text for one in lines] == [one.text for one in coded]
    assert [one.speaker for one in lines] == [one.speaker for one in coded]
    assert [one.duration_s for one in lines] == [len(one.codes) / 75 for one in coded]
    assert np.isfinite(corpus.samples(lines[0])).all()


def test_kept_codes_are_not_made_again_from_restored_sound(cache: Path) -> None:
    before = [one.codes for one in codes.read_shard(codes.shard_files(cache, "crowd")[0])]
    restore.main()
    codes.main()
    after = codes.read_shard(codes.shard_files(cache, "crowd")[0])
    for one, codes_before in zip(after, before, strict=True):
        np.testing.assert_array_equal(one.codes, codes_before)


def test_the_codec_does_not_learn_from_restored_sound(cache: Path) -> None:
    restore.main()
    write_corpus(cache / "speech", shards=4)
    restored, true = Corpus(cache, "crowd"), Corpus(cache, "speech")
    clips = Clips([(true, 0.5), (restored, 0.5)], 2_400)
    alone = Clips([(true, 1.0)], 2_400)
    drawn, drawn_alone = (one.draw(8, np.random.default_rng(0)) for one in (clips, alone))
    np.testing.assert_array_equal(drawn, drawn_alone)
